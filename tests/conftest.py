"""One thread for every test: the models are tiny, and on a busy machine waiting threads cost more than they save."""

import torch

torch.set_num_threads(1)
