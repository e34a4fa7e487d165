"""Each Triton kernel against plain torch on random inputs. On CUDA, or under Triton's interpreter (see test_cuda.py)."""

import importlib.util
import os

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from coterie.engines.base import Request, Sampler
from coterie.engines.sampling import sample

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPES = [torch.float32, torch.bfloat16] if DEVICE == "cuda" else [torch.float32]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a CUDA device, or Triton's interpreter"),
]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float32).to(DEVICE, dtype)


def error(ours: torch.Tensor, reference: torch.Tensor) -> float:
    return ((ours.double() - reference.double()).norm() / reference.double().norm()).item()


def bound(dtype: torch.dtype) -> float:
    return 1e-5 if dtype == torch.float32 else 1e-2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "inner", "outer"), [(1, 96, 48), (5, 128, 72), (33, 256, 130)])
def test_products_of_few_rows(dtype, rows, inner, outer):
    from coterie.engines import kernels_gemm

    x, w = random(rows, inner, dtype=dtype), random(2 * outer, inner, dtype=dtype) / inner**0.5
    gate, up = (x.double() @ w.double().t()).chunk(2, dim=-1)
    assert error(kernels_gemm.gate_up(x, w), F.silu(gate) * up) < bound(dtype)
    parts = kernels_gemm.parts(x, w, programs=8)
    assert error(parts.sum(0), x.double() @ w.double().t()) < bound(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_norm_of_a_sum_and_of_parts(dtype):
    from coterie.engines import kernels

    x, residual, weight = random(3, 40, dtype=dtype), random(3, 40), random(40, dtype=dtype)
    total = residual.double() + x.double()
    expected = F.rms_norm(total, (40,), weight.double(), 1e-6)
    parts = torch.stack([0.25 * x.float(), 0.75 * x.float()])
    for given in (x, parts):
        kept = residual.clone()
        assert error(kernels.add_norm(given, kept, weight, 1e-6), expected) < bound(dtype)
        assert error(kept, total) < bound(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("programs", "rows"), [(1, 3), (24, 3)])
@pytest.mark.parametrize(("H", "K", "D"), [(4, 2, 16), (3, 3, 24), (12, 2, 128)])
def test_decode_attention(dtype, programs, rows, H, K, D):
    """Split or not, over pasts of nothing, of less and of more than a tile; the cache is poisoned wherever nobody may look."""
    from coterie.engines.kernels_attention import AttentionScratch, decode_attention

    span, slots = 192, rows + 2
    pasts = [0, 37, 150][:rows]
    cache = torch.full((2, slots, K, span, D), torch.nan, device=DEVICE, dtype=dtype)
    row_slot = torch.tensor([4, 0, 2][:rows], dtype=torch.int32, device=DEVICE)
    qkv = random(rows, (H + 2 * K) * D, dtype=dtype)
    angles = torch.rand(span, D // 2) * 6
    rope = (angles.cos().to(DEVICE, dtype), angles.sin().to(DEVICE, dtype))
    for slot, past in zip(row_slot.tolist(), pasts, strict=True):
        cache[:, slot, :, :past] = random(2, K, past, D, dtype=dtype)
    before = cache.clone()
    scratch = AttentionScratch(rows, (H, K, D), torch.device(DEVICE), programs=programs)
    past_B = torch.tensor(pasts, dtype=torch.int32, device=DEVICE)
    for _ in range(2):  # the scratch is left as it was found
        ours = decode_attention(qkv, cache, row_slot, past_B, rope, (None, None), (H, K, D), 1e-6, scratch)
    for row, (slot, past) in enumerate(zip(row_slot.tolist(), pasts, strict=True)):
        q, k, v = qkv[row].view(-1, D).double().split([H, K, K])
        cos, sin = (torch.cat([t[past], t[past]]).double() for t in rope)
        turn = lambda x: x * cos + torch.cat([-x[:, D // 2 :], x[:, : D // 2]], -1) * sin  # noqa: B023, E731
        keys = torch.cat([before[0, slot, :, :past].double(), turn(k)[:, None]], 1).repeat_interleave(H // K, 0)
        values = torch.cat([before[1, slot, :, :past].double(), v[:, None]], 1).repeat_interleave(H // K, 0)
        weights = torch.softmax((turn(q)[:, None] @ keys.transpose(1, 2)) / D**0.5, -1)
        assert error(ours[row].view(H, D), (weights @ values)[:, 0]) < bound(dtype)
        assert error(cache[0, slot, :, past], turn(k)) < bound(dtype)
        before[:, slot, :, past] = cache[:, slot, :, past]
    assert torch.equal(torch.nan_to_num(before), torch.nan_to_num(cache))  # nothing else was written


@pytest.mark.parametrize("vocabulary", [97, 9001])
def test_sampling_is_that_of_the_reference(vocabulary):
    """Several temperatures, greedy, a cut by top-k, uniforms at both ends; then what the slots say afterwards."""
    from coterie.engines.kernels_sampling import choose, truncate
    from coterie.engines.slots import Slots

    samplers = [
        Sampler(),
        Sampler(0.5),
        Sampler(2.0),
        Sampler(0.0),
        Sampler(top_k=5),
        Sampler(0.8, top_p=0.5),
        Sampler(),
        Sampler(),
    ]
    uniforms = [0.3, 0.9, 0.51, 0.7, 0.8, 0.2, 0.0, float(np.nextafter(1.0, 0.0))]
    logits = 3 * random(8, vocabulary)
    logits[:, 7] = -torch.inf
    slots = Slots(10, 4, torch.device(DEVICE))
    caps = [1, *[4] * 7]
    asked = [Request((3, 4), cap, "policy", s, [u] * 4) for cap, s, u in zip(caps, samplers, uniforms, strict=True)]
    places = [9, 1, 2, 3, 4, 5, 6, 0]
    rows = slots.start(places, asked, [-1] * 8)
    ids, logprobs = sample(logits, samplers, torch.tensor(uniforms, dtype=torch.float64, device=DEVICE))
    stop = torch.tensor([int(ids[1])], dtype=torch.int32, device=DEVICE)
    choose(truncate(logits, rows, slots), rows, slots, stop)
    assert slots.ids[rows.long(), 0].tolist() == ids.tolist()
    np.testing.assert_allclose(slots.logprobs[rows.long(), 0].cpu(), logprobs.cpu(), atol=1e-5)
    ended = [cap == 1 or i == int(ids[1]) for cap, i in zip(caps, ids.tolist(), strict=True)]
    assert slots.done[rows.long()].tolist() == [int(e) for e in ended]
    assert slots.position[rows.long()].tolist() == [1 if e else 2 for e in ended]
    choose(logits, rows, slots, stop)  # ended ones stay as they are
    assert slots.count[rows.long()].tolist() == [1 if e else 2 for e in ended]
