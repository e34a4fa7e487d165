"""Triton kernels for what the learner's pass spends on memory, not on arithmetic: norms, rotary positions, the gate, log-softmax.

Imported only where there is a CUDA device (`ops` dispatches). Each reads its inputs once and computes in fp32. `ops`
has the same functions in plain torch, which these are tested against.
T tokens, E width, H heads, D head size, I inner width, n positions, V vocabulary.
"""

from typing import Any

import torch
import triton  # pyright: ignore[reportMissingImports]
import triton.language as tl  # pyright: ignore[reportMissingImports]
from torch import Tensor


@triton.jit
def _add_norm(x, delta, weight, total, normed, rstd, width, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    value = tl.load(x + row * width + columns, mask=inside, other=0.0).to(tl.float32)
    if HAS_DELTA:
        value += tl.load(delta + row * width + columns, mask=inside, other=0.0).to(tl.float32)
        # the norm sees what is kept, so that the backward pass, which reads it again, differentiates what was computed
        value = value.to(total.dtype.element_ty).to(tl.float32)
        tl.store(total + row * width + columns, value, mask=inside)
    scale = tl.rsqrt(tl.sum(value * value, 0) / width + eps)
    tl.store(rstd + row, scale)
    hat = (value * scale).to(normed.dtype.element_ty).to(tl.float32)  # rounded where transformers and the sampler round
    tl.store(normed + row * width + columns, hat * tl.load(weight + columns, mask=inside, other=0.0), mask=inside)


def add_norm(x_TE: Tensor, delta_TE: Tensor | None, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """x + delta in x's precision, its RMS norm in the weight's, and 1 / rms (T, fp32)."""
    rows, width = x_TE.shape
    total = torch.empty_like(x_TE) if delta_TE is not None else x_TE
    normed = torch.empty_like(x_TE, dtype=weight_E.dtype)
    rstd = torch.empty(rows, dtype=torch.float32, device=x_TE.device)
    block = triton.next_power_of_2(width)
    _launch(_add_norm)[(rows,)](
        x_TE, delta_TE, weight_E, total, normed, rstd, width, eps, delta_TE is not None, block, num_warps=_warps(block)
    )
    return total, normed, rstd


@triton.jit
def _norm_backward(
    gradient, direct, total, weight, rstd, result, rounded, width,
    HAS_DIRECT: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    inside = columns < width
    at = row * width + columns
    scale = tl.load(rstd + row)
    hat = tl.load(total + at, mask=inside, other=0.0).to(tl.float32) * scale
    weighted = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32) * tl.load(weight + columns, mask=inside, other=0.0)
    value = scale * (weighted - hat * (tl.sum(weighted * hat, 0) / width))
    if HAS_DIRECT:
        value += tl.load(direct + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(result + at, value, mask=inside)
    if ROUND:
        tl.store(rounded + at, value, mask=inside)


def norm_backward(
    gradient_TE: Tensor, direct_TE: Tensor | None, total_TE: Tensor, weight_E: Tensor, rstd_T: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The gradient through the norm, plus what reached the sum directly: of x, and the same in `dtype`, of delta."""
    rows, width = total_TE.shape
    result, block = torch.empty_like(total_TE), triton.next_power_of_2(width)
    rounded = result if dtype == result.dtype else torch.empty_like(result, dtype=dtype)
    arguments = (gradient_TE, direct_TE, total_TE, weight_E, rstd_T, result, rounded, width)
    _launch(_norm_backward)[(rows,)](*arguments, direct_TE is not None, rounded is not result, block, num_warps=_warps(block))
    return result, rounded


@triton.jit
def _rotate(x, cos, sin, result, heads, half, SIGN: tl.constexpr, HEADS: tl.constexpr, HALF: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    head, column = tl.arange(0, HEADS)[:, None], tl.arange(0, HALF)[None]
    inside = (head < heads) & (column < half)
    at = token * heads * half * 2 + head * half * 2 + column
    angle = token * half * 2 + column
    c = tl.load(cos + angle, mask=column < half, other=0.0).to(tl.float32)
    s = tl.load(sin + angle, mask=column < half, other=0.0).to(tl.float32) * SIGN
    left = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(x + at + half, mask=inside, other=0.0).to(tl.float32)
    tl.store(result + at, left * c - right * s, mask=inside)
    tl.store(result + at + half, right * c + left * s, mask=inside)


def rotate(x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor, sign: int) -> Tensor:
    """Rotary positions; with `sign` -1 the transposed map, which is the backward pass."""
    tokens, heads, size = x_THD.shape
    result = torch.empty_like(x_THD)
    blocks = triton.next_power_of_2(heads), triton.next_power_of_2(size // 2)
    _launch(_rotate)[(tokens,)](
        x_THD, cos_TD, sin_TD, result, heads, size // 2, sign, *blocks, num_warps=_warps(blocks[0] * blocks[1])
    )
    return result


@triton.jit
def _gate(gate, up, result, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    activated = (g * tl.sigmoid(g)).to(result.dtype.element_ty).to(tl.float32)
    tl.store(result + at, activated * tl.load(up + at, mask=inside, other=0.0).to(tl.float32), mask=inside)


def gate(gate_TI: Tensor, up_TI: Tensor) -> Tensor:
    """silu(gate) * up."""
    result = torch.empty_like(gate_TI)
    _launch(_gate)[(triton.cdiv(result.numel(), 4096),)](gate_TI, up_TI, result, result.numel(), 4096, num_warps=8)
    return result


@triton.jit
def _gate_backward(gate, up, gradient, result, gate_gradient, up_gradient, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    sigma = tl.sigmoid(g)
    tl.store(result + at, (g * sigma).to(result.dtype.element_ty).to(tl.float32) * u, mask=inside)
    tl.store(up_gradient + at, d * g * sigma, mask=inside)
    tl.store(gate_gradient + at, d * u * sigma * (1.0 + g * (1.0 - sigma)), mask=inside)


def gate_backward(gate_TI: Tensor, up_TI: Tensor, gradient_TI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """silu(gate) * up again (cheaper to compute than to keep), and the gradients of gate and up.

    The last is written over `gradient_TI`, each element of which is read before.
    """
    result, gate_gradient = torch.empty_like(gate_TI), torch.empty_like(gate_TI)
    grid = (triton.cdiv(result.numel(), 4096),)
    _launch(_gate_backward)[grid](
        gate_TI, up_TI, gradient_TI, result, gate_gradient, gradient_TI, result.numel(), 4096, num_warps=8
    )
    return result, gate_gradient, gradient_TI


@triton.jit
def _log_softmax(logits, target, temperature, logprob, slope, vocabulary, WITH_SLOPE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    t = tl.load(temperature + row)
    wanted = tl.load(target + row)
    start = logits + row * vocabulary
    top = tl.full((BLOCK,), -1e30, tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, vocabulary, BLOCK):
        columns = first + tl.arange(0, BLOCK)
        value = tl.load(start + columns, mask=columns < vocabulary, other=float("-inf")) / t
        higher = tl.maximum(top, value)
        total = total * tl.exp(top - higher) + tl.exp(value - higher)
        top = higher
    highest = tl.max(top, 0)
    lse = highest + tl.log(tl.sum(total * tl.exp(top - highest), 0))
    tl.store(logprob + row, tl.load(start + wanted) / t - lse)
    if WITH_SLOPE:
        for first in range(0, vocabulary, BLOCK):
            columns = first + tl.arange(0, BLOCK)
            inside = columns < vocabulary
            value = tl.load(start + columns, mask=inside, other=float("-inf")) / t
            rest = tl.where(columns == wanted, 1.0, 0.0) - tl.exp(value - lse)
            tl.store(slope + row * vocabulary + columns, rest / t, mask=inside)


def log_softmax(
    logits_nV: Tensor, target_n: Tensor, temperature_n: Tensor, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor | None]:
    """Log-probability of each target, and its slope (n, V) in the logits, in `dtype`; without a slope where that is None."""
    count, vocabulary = logits_nV.shape
    logprob_n = torch.empty(count, dtype=torch.float32, device=logits_nV.device)
    slope_nV = torch.empty(logits_nV.shape, dtype=dtype, device=logits_nV.device) if dtype else None
    arguments = (logits_nV, target_n, temperature_n, logprob_n, slope_nV, vocabulary, dtype is not None, 8192)
    _launch(_log_softmax)[(count,)](*arguments, num_warps=16)
    return logprob_n, slope_nV


def _launch(kernel: Any) -> Any:
    return kernel  # for the type checker, to which a kernel is a function that cannot be indexed by its grid


def _warps(block: int) -> int:
    return min(16, max(1, block // 256))
