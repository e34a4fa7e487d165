"""One of two processes of `test_distributed.py`: train for some steps and write what came of it."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from learn_builders import lora_learner, ragged_rows, row, train_config, weights_of


def steps():
    """Eight rows; eight with all advantages zero; one row (so that a second process has none); eight again."""
    return [ragged_rows(), [row([1], [2, 3], 0.0)] * 8, [row([1, 2], [3, 4], -1.0)], ragged_rows(seed=1)]


def train(tokens_per_micro_batch: int, dropout: float = 0.0):
    learner = lora_learner(train_config(tokens_per_micro_batch=tokens_per_micro_batch, weight_decay=0.1), dropout=dropout)
    return [learner.step(rows) for rows in steps()], weights_of(learner)


if __name__ == "__main__":
    rank, folder = int(sys.argv[1]), Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting-point", rank=rank, world_size=2)
    torch.save({dropout: train(30, dropout) for dropout in (0.0, 0.3)}, folder / f"rank-{rank}.pt")
    dist.destroy_process_group()
