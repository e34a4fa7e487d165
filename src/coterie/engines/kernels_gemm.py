# pyright: reportMissingImports=false, reportIndexIssue=false
"""Matrix products of few rows, which only stream the weights: faster than the general library where a batch has 64 rows or fewer.

Two things are gained: the activation of gate and up is applied where they are computed, and a product whose output is narrow is cut
along its inner dimension too, so that every multiprocessor streams; its parts, in fp32, are added by the norm that follows anyway.
With more rows the library's kernels are better (`bench/NOTES.md` has both).
"""

import torch
import triton
import triton.language as tl

MOST_ROWS = 64


@triton.jit(do_not_specialize=["M"])
def _gate_up(x, w, out, M, F, E, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """One tile holds BN rows of gate and the BN rows of up that belong to them."""
    first = tl.program_id(0) * BN
    r = tl.arange(0, 2 * BN)
    row = (first + r % BN + tl.where(r < BN, 0, F)).to(tl.int64)
    live_n = first + r % BN < F
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    acc = tl.zeros((2 * BN, BM), tl.float32)
    for at in range(0, E, BK):
        live_k = at + k < E
        a = tl.load(w + row[:, None] * E + (at + k)[None, :], mask=live_n[:, None] & live_k[None, :], other=0.0)
        b = tl.load(x + m[None, :] * E + (at + k)[:, None], mask=(m < M)[None, :] & live_k[:, None], other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    gate, up = tl.split(acc.reshape(2, BN, BM).permute(1, 2, 0))
    dtype = out.dtype.element_ty
    gate = gate.to(dtype).to(tl.float32)
    n = first + tl.arange(0, BN)
    value = ((gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up.to(dtype).to(tl.float32)).to(dtype)
    tl.store(out + m[None, :] * F + n[:, None], value, mask=(n < F)[:, None] & (m < M)[None, :])


@triton.jit(do_not_specialize=["M"])
def _parts(x, w, out, M, N, K, per, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    part = tl.program_id(1)
    m = tl.arange(0, BM)
    k = tl.arange(0, BK)
    acc = tl.zeros((BN, BM), tl.float32)
    for at in range(part * per, tl.minimum(part * per + per, K), BK):
        live_k = at + k < K
        a = tl.load(w + n[:, None].to(tl.int64) * K + (at + k)[None, :], mask=(n < N)[:, None] & live_k[None, :], other=0.0)
        b = tl.load(x + m[None, :] * K + (at + k)[:, None], mask=(m < M)[None, :] & live_k[:, None], other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(out + part * M * N + m[None, :] * N + n[:, None], acc, mask=(n < N)[:, None] & (m < M)[None, :])


def _block_rows(rows: int) -> int:
    """Two sizes only, so that few kernels are compiled."""
    return 32 if rows <= 32 else 64


def gate_up(x_BE: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """silu(x gate') * (x up') for the fused weight (2F, E): (B, E) to (B, F), rounded where transformers rounds."""
    B, E = x_BE.shape
    F = weight.shape[0] // 2
    out = x_BE.new_empty(B, F)
    _gate_up[(triton.cdiv(F, 32),)](
        x_BE, weight, out, B, F, E, _block_rows(B), 32, 128 if E % 128 == 0 else 32, num_warps=4, num_stages=3
    )
    return out


def parts(x_BK: torch.Tensor, weight_NK: torch.Tensor, programs: int = 192) -> torch.Tensor:
    """x w' as a sum of parts over the inner dimension, (parts, B, N) in fp32; as many as give about `programs` programs."""
    B, K = x_BK.shape
    N = weight_NK.shape[0]
    block = 128 if K % 128 == 0 else 32
    blocks = triton.cdiv(K, block)
    wanted = max(1, min(blocks // 3, programs // triton.cdiv(N, 64), 16))
    per = triton.cdiv(blocks, wanted)
    count = triton.cdiv(blocks, per)
    out = torch.empty(count, B, N, dtype=torch.float32, device=x_BK.device)
    _parts[(triton.cdiv(N, 64), count)](
        x_BK, weight_NK, out, B, N, K, per * block, _block_rows(B), 64, block, num_warps=4, num_stages=3
    )
    return out
