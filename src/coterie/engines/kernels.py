# pyright: reportMissingImports=false, reportIndexIssue=false
"""Triton kernels of the decoder: norms, gated feed-forward and rotary positions.

A decode step of a small model is bound by the number of kernels it launches, so everything between two matrix products is one
kernel. Each rounds where transformers rounds, with one exception: the residual stream stays in fp32. That costs next to nothing and
takes away a third of the noise that bf16 puts on a log-probability.

Imported only where Triton is: on CUDA, or under Triton's interpreter (TRITON_INTERPRET=1) in tests. Shapes as in `decoder`:
B rows, H query heads, K key heads, D head size, E model width; N tokens of packed prompts. The cache of one layer is
(slots, K, span, D) for keys and the same for values; `row_slot` says which slot a row of the batch plays, so no cache ever moves.
"""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["B"])
def _add_norm(
    x, residual, ids, row_slot, weight, out, B, E, eps,
    PARTS: tl.constexpr, GATHER: tl.constexpr, INDIRECT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BLOCK)
    live = e < E
    if GATHER:
        at = row
        if INDIRECT:
            at = tl.load(row_slot + row).to(tl.int64)
        total = tl.load(x + tl.load(ids + at).to(tl.int64) * E + e, mask=live, other=0.0).to(tl.float32)
    else:
        total = tl.load(x + row * E + e, mask=live, other=0.0).to(tl.float32)
        for part in tl.static_range(1, PARTS):
            total += tl.load(x + (part * B + row) * E + e, mask=live, other=0.0)
        total += tl.load(residual + row * E + e, mask=live, other=0.0)
    dtype = out.dtype.element_ty
    tl.store(residual + row * E + e, total, mask=live)
    scaled = (total * tl.rsqrt(tl.sum(total * total, 0) / E + eps)).to(dtype).to(tl.float32)
    tl.store(out + row * E + e, (scaled * tl.load(weight + e, mask=live, other=0.0).to(tl.float32)).to(dtype), mask=live)


def add_norm(x: torch.Tensor, residual_BE: torch.Tensor, weight_E: torch.Tensor, eps: float) -> torch.Tensor:
    """Adds `x`, (B, E) or a sum of parts (parts, B, E) in fp32, to `residual` (fp32) in place; returns the RMS norm of the sum,
    (B, E), in the precision of the weight."""
    B, E = residual_BE.shape
    out = torch.empty_like(residual_BE, dtype=weight_E.dtype)
    parts = x.shape[0] if x.dim() == 3 else 1
    _add_norm[(B,)](x, residual_BE, x, x, weight_E, out, B, E, eps, parts, False, False, triton.next_power_of_2(E), num_warps=4)
    return out


def embed_norm(
    table_VE: torch.Tensor, ids: torch.Tensor, row_slot_B: torch.Tensor | None, weight_E: torch.Tensor, eps: float, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings of `ids` (of `ids[row_slot]` when given), (rows, E) in fp32, and their RMS norm."""
    E = table_VE.shape[1]
    residual, out = table_VE.new_empty(rows, E, dtype=torch.float32), table_VE.new_empty(rows, E)
    slots = ids if row_slot_B is None else row_slot_B
    block = triton.next_power_of_2(E)
    _add_norm[(rows,)](
        table_VE, residual, ids, slots, weight_E, out, rows, E, eps, 1, True, row_slot_B is not None, block, num_warps=4
    )
    return residual, out


@triton.jit
def _silu_mul(gate_up, out, F, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    f = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    live = f < F
    gate = tl.load(gate_up + row * 2 * F + f, mask=live, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * 2 * F + F + f, mask=live, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    tl.store(out + row * F + f, ((gate * tl.sigmoid(gate)).to(dtype).to(tl.float32) * up).to(dtype), mask=live)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of rows (gate, up): (B, 2F) to (B, F)."""
    B, F = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(B, F)
    block = 1024
    _silu_mul[(B, triton.cdiv(F, block))](gate_up, out, F, block, num_warps=4)
    return out


@triton.jit
def _read_rotate(
    qkv, keys, values, token_slot, token_position, cos, sin, norm_q, norm_k, eps, slot_stride, head_stride,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, HP: tl.constexpr, KP: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """One prompt token. Both halves of a head are held by the same thread, so rotating in place needs no barrier."""
    token = tl.program_id(0).to(tl.int64)
    slot = tl.load(token_slot + token).to(tl.int64)
    position = tl.load(token_position + token)
    half: tl.constexpr = D // 2
    dtype = qkv.dtype.element_ty
    base = qkv + token * (H + 2 * K) * D
    h = tl.arange(0, HP)[:, None]
    d = tl.arange(0, BH)[None, :]
    live = (h < H + K) & (d < half)
    x = tl.load(base + h * D + d, mask=live, other=0.0).to(tl.float32)
    y = tl.load(base + h * D + half + d, mask=live, other=0.0).to(tl.float32)
    if NORM:
        scale = tl.rsqrt((tl.sum(x * x, 1) + tl.sum(y * y, 1)) / D + eps)[:, None]
        is_query = h < H
        few = d < half
        wx = tl.where(is_query, tl.load(norm_q + d, mask=few, other=0.0), tl.load(norm_k + d, mask=few, other=0.0))
        wy = tl.where(is_query, tl.load(norm_q + half + d, mask=few, other=0.0), tl.load(norm_k + half + d, mask=few, other=0.0))
        x = ((x * scale).to(dtype).to(tl.float32) * wx.to(tl.float32)).to(dtype).to(tl.float32)
        y = ((y * scale).to(dtype).to(tl.float32) * wy.to(tl.float32)).to(dtype).to(tl.float32)
    c = tl.load(cos + position * half + d, mask=d < half, other=0.0).to(tl.float32)
    s = tl.load(sin + position * half + d, mask=d < half, other=0.0).to(tl.float32)
    first = (x * c - y * s).to(dtype)
    second = (y * c + x * s).to(dtype)
    tl.store(base + h * D + d, first, mask=live)
    tl.store(base + h * D + half + d, second, mask=live)
    at = slot * slot_stride + position.to(tl.int64) * D
    is_key = live & (h >= H)
    tl.store(keys + at + (h - H) * head_stride + d, first, mask=is_key)
    tl.store(keys + at + (h - H) * head_stride + half + d, second, mask=is_key)
    k = tl.arange(0, KP)[:, None]
    e = tl.arange(0, BD)[None, :]
    all_v = (k < K) & (e < D)
    tl.store(values + at + k * head_stride + e, tl.load(base + (H + K + k) * D + e, mask=all_v, other=0.0), mask=all_v)


Norms = tuple[torch.Tensor | None, torch.Tensor | None]


def read_rotate(
    qkv_N: torch.Tensor,
    layer_cache: torch.Tensor,
    token_slot: torch.Tensor,
    token_position: torch.Tensor,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: Norms,
    shape: tuple[int, int, int],
    eps: float,
) -> None:
    """Prompts: normalises (Qwen3) and rotates queries and keys of `qkv` (N, (H + 2K) D) in place, and writes keys and values to
    the cache of this layer, (2, slots, K, span, D), at each token's slot and position."""
    H, K, D = shape
    norm_q, norm_k = norms
    _read_rotate[(len(qkv_N),)](
        qkv_N, layer_cache[0], layer_cache[1], token_slot, token_position, rope[0], rope[1],
        qkv_N if norm_q is None else norm_q, qkv_N if norm_k is None else norm_k, eps, layer_cache.stride(1), layer_cache.stride(2),
        H, K, D, triton.next_power_of_2(H + K), max(2, triton.next_power_of_2(K)), triton.next_power_of_2(D // 2),
        triton.next_power_of_2(D), norm_q is not None, num_warps=4,
    )  # fmt: skip
