"""Two processes on the CPU, which share the rows of each step, against one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_worker import train

WORKER = Path(__file__).with_name("distributed_worker.py")


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What each of the two processes wrote."""
    folder = tmp_path_factory.mktemp("two-processes")
    command = [sys.executable, str(WORKER)]
    options = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "stderr": subprocess.PIPE, "text": True}
    started = [subprocess.Popen([*command, str(rank), str(folder)], **options) for rank in range(2)]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_processes_end_with_the_same_bits(both, dropout):
    (metrics, weights), (other_metrics, other_weights) = (results[dropout] for results in both)
    assert metrics == other_metrics
    assert all(torch.equal(weights[n], other_weights[n]) for n in weights)


def test_two_processes_equal_one(both):
    """Loss, gradient norm and all other metrics of four steps, and the weights after them."""
    metrics, weights = both[0][0.0]
    alone_metrics, alone_weights = train(10_000)
    assert [m["skipped"] for m in metrics] == [False, True, False, False]
    for ours, alone in zip(metrics, alone_metrics, strict=True):
        assert ours.keys() == alone.keys()
        for key in ours.keys() - {"micro_batch_tokens"}:
            assert ours[key] == pytest.approx(alone[key], rel=1e-5, abs=1e-6), key
    for name in weights:
        torch.testing.assert_close(weights[name], alone_weights[name], atol=1e-6, rtol=1e-5)
