"""One thread for every test: the models are tiny, and threads that wait for each other on a busy machine cost far more than they save."""

import torch

torch.set_num_threads(1)
