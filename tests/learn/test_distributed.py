"""Two processes on the CPU, which share the rows of each step, against one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_worker import train

WORKER = Path(__file__).with_name("distributed_worker.py")


def two_processes(folder, dropout=0.0):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(WORKER)]
    started = [
        subprocess.Popen([*command, str(rank), str(folder), str(dropout)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


def test_two_processes_equal_one(tmp_path):
    (metrics, weights), (other_metrics, other_weights) = two_processes(tmp_path)
    assert metrics == other_metrics
    assert all(torch.equal(weights[n], other_weights[n]) for n in weights)
    alone_metrics, alone_weights = train(10_000)
    assert [m["skipped"] for m in metrics] == [False, True, False, False]
    for ours, alone in zip(metrics, alone_metrics, strict=True):
        assert ours.keys() == alone.keys()
        different = {"micro_batch_tokens"}
        assert {k: v for k, v in ours.items() if k not in different} == pytest.approx(
            {k: v for k, v in alone.items() if k not in different}, rel=1e-5, abs=1e-6
        )
    for name in weights:
        torch.testing.assert_close(weights[name], alone_weights[name], atol=1e-6, rtol=1e-5)


def test_processes_agree_under_dropout(tmp_path):
    (metrics, weights), (other_metrics, other_weights) = two_processes(tmp_path, dropout=0.3)
    assert metrics == other_metrics
    assert all(torch.equal(weights[n], other_weights[n]) for n in weights)
