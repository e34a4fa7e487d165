"""Each Triton kernel of the learner against plain torch. On CUDA, or under Triton's interpreter (TRITON_INTERPRET=1)."""

import importlib.util
import os

import pytest
import torch
from learn_builders import DEVICE, HALF, assert_near, draw

from coterie.learn import ops

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
TOKENS = 333 if DEVICE == "cuda" else 5
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a CUDA device, or Triton's interpreter"),
]


def on_both(monkeypatch, function, *arguments):
    """Results and gradients by the kernels and by plain torch, on the same inputs."""
    from coterie.learn import kernels

    results = []
    for module in (kernels, None):
        monkeypatch.setattr(ops, "_kernels", lambda _, module=module: module)
        inputs = [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in arguments]
        outputs = function(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        leaves = [i for i in inputs if isinstance(i, torch.Tensor) and i.requires_grad]
        gradients = ()
        if leaves:
            loss = sum((o.float() * torch.cos(torch.arange(o.numel(), device=DEVICE)).view(o.shape)).sum() for o in outputs)
            gradients = torch.autograd.grad(loss, leaves)
        results.append([t.detach() for t in (*outputs, *gradients) if t is not None])
    assert [t.dtype for t in results[0]] == [t.dtype for t in results[1]]
    return zip(*results, strict=True)


@pytest.mark.parametrize("width", [64, 100, 1536])
@pytest.mark.parametrize("stream", [HALF, torch.float32])
def test_norms(monkeypatch, width, stream):
    """With a residual stream in half or full precision."""
    weight = draw(width, grad=False)
    assert_near(on_both(monkeypatch, ops.norm, draw(TOKENS, width, dtype=stream), weight, 1e-6))
    assert_near(on_both(monkeypatch, ops.add_norm, draw(TOKENS, width, dtype=stream), draw(TOKENS, width), weight, 1e-6))


@pytest.mark.parametrize(("heads", "size"), [(12, 128), (9, 64), (2, 128), (3, 80)])
def test_rotary(monkeypatch, heads, size):
    angles = torch.rand(TOKENS, size // 2, device=DEVICE) * 6
    cos, sin = (f(torch.cat((angles, angles), -1)).to(HALF) for f in (torch.cos, torch.sin))
    assert_near(on_both(monkeypatch, ops.rotate, draw(TOKENS, heads, size), cos, sin))


def test_gate(monkeypatch):
    assert_near(on_both(monkeypatch, ops.gate, draw(33, 8960, grad=False), draw(33, 8960, grad=False)))
    assert_near(on_both(monkeypatch, ops.gate_backward, *(draw(33, 1001, grad=False) for _ in range(3))))


@pytest.mark.parametrize("vocabulary", [37, 8192, 151_936])
def test_log_softmax(monkeypatch, vocabulary):
    logits, target = draw(19, vocabulary, grad=False, dtype=torch.float32) * 8, torch.randint(0, vocabulary, (19,), device=DEVICE)
    assert_near(on_both(monkeypatch, ops.log_softmax, logits, target, torch.rand(19, device=DEVICE) + 0.5, HALF))
    assert_near(on_both(monkeypatch, ops.log_softmax, logits, target, torch.rand(19, device=DEVICE) + 0.5, None), 1e-5)
