# pyright: reportMissingImports=false, reportIndexIssue=false
"""Triton kernels of the decoder: norms, gated feed-forward, rotary positions and grouped-query decode attention.

A decode step of a small model is bound by the number of kernels it launches, so everything between two matrix products is one
kernel. Each rounds where transformers rounds (after the residual sum, after the normalisation and again after the norm's weight,
after the activation), so that sampler and learner differ by the order of sums only.

Imported only where Triton is: on CUDA, or under Triton's interpreter (TRITON_INTERPRET=1) in tests. Shapes as in `decoder`:
B rows, H query heads, K key heads, D head size, E model width; N tokens of packed prompts. The cache of one layer is
(slots, K, span, D) for keys and the same for values; `row_slot` says which slot a row of the batch plays, so no cache ever moves.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _add_norm(x, residual, ids, row_slot, weight, out, E, eps, GATHER: tl.constexpr, INDIRECT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    e = tl.arange(0, BLOCK)
    live = e < E
    if GATHER:
        at = row
        if INDIRECT:
            at = tl.load(row_slot + row).to(tl.int64)
        total = tl.load(x + tl.load(ids + at).to(tl.int64) * E + e, mask=live, other=0.0)
    else:
        total = tl.load(x + row * E + e, mask=live, other=0.0).to(tl.float32)
        total += tl.load(residual + row * E + e, mask=live, other=0.0).to(tl.float32)
    dtype = out.dtype.element_ty
    total = total.to(dtype)
    tl.store(residual + row * E + e, total, mask=live)
    total = total.to(tl.float32)
    scaled = (total * tl.rsqrt(tl.sum(total * total, 0) / E + eps)).to(dtype).to(tl.float32)
    tl.store(out + row * E + e, (scaled * tl.load(weight + e, mask=live, other=0.0).to(tl.float32)).to(dtype), mask=live)


def add_norm(x_BE: torch.Tensor, residual_BE: torch.Tensor, weight_E: torch.Tensor, eps: float) -> torch.Tensor:
    """Adds `x` to `residual` in place and returns the RMS norm of the sum, (B, E)."""
    B, E = x_BE.shape
    out = torch.empty_like(x_BE)
    _add_norm[(B,)](x_BE, residual_BE, x_BE, x_BE, weight_E, out, E, eps, False, False, triton.next_power_of_2(E), num_warps=4)
    return out


def embed_norm(
    table_VE: torch.Tensor, ids: torch.Tensor, row_slot_B: torch.Tensor | None, weight_E: torch.Tensor, eps: float, rows: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The embeddings of `ids` (of `ids[row_slot]` when given), (rows, E), and their RMS norm."""
    E = table_VE.shape[1]
    residual, out = table_VE.new_empty(rows, E), table_VE.new_empty(rows, E)
    slots = ids if row_slot_B is None else row_slot_B
    _add_norm[(rows,)](
        table_VE, residual, ids, slots, weight_E, out, E, eps, True, row_slot_B is not None, triton.next_power_of_2(E), num_warps=4
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


@triton.jit
def _normed(x, weight, scale, d, live, dtype):
    x = (x * scale).to(dtype).to(tl.float32)
    return (x * tl.load(weight + d, mask=live, other=0.0).to(tl.float32)).to(dtype).to(tl.float32)


@triton.jit(do_not_specialize=["splits"])
def _decode_attention(
    qkv, keys, values, out, part, part_max, part_sum, arrived, row_slot, position, cos, sin, norm_q, norm_k, eps, scale,
    slot_stride, head_stride, splits,
    H: tl.constexpr, K: tl.constexpr, D: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, BD: tl.constexpr, BN: tl.constexpr,
    NORM: tl.constexpr,
):  # fmt: skip
    """One row, one key head, one part of the past. The first part also holds the new token, taken from registers: nobody reads
    its place in the cache in this step. The part that arrives last puts the parts together."""
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    split = tl.program_id(2)
    slot = tl.load(row_slot + row).to(tl.int64)
    past = tl.load(position + slot)
    dtype = qkv.dtype.element_ty
    half: tl.constexpr = D // 2
    g = tl.arange(0, GP)
    d = tl.arange(0, BD)
    n = tl.arange(0, BN)
    live_d = d < D
    live_q = (g < G)[:, None] & live_d[None, :]
    partner = tl.where(d < half, d + half, d - half)
    sign = tl.where(d < half, -1.0, 1.0)
    c = tl.load(cos + past * half + d % half, mask=live_d, other=0.0).to(tl.float32)
    s = tl.load(sin + past * half + d % half, mask=live_d, other=0.0).to(tl.float32) * sign
    base = qkv + row * (H + 2 * K) * D
    q_at = base + (head * G + g)[:, None] * D
    k_at = base + (H + head) * D
    q = tl.load(q_at + d[None, :], mask=live_q, other=0.0).to(tl.float32)
    q2 = tl.load(q_at + partner[None, :], mask=live_q, other=0.0).to(tl.float32)
    k = tl.load(k_at + d, mask=live_d, other=0.0).to(tl.float32)
    k2 = tl.load(k_at + partner, mask=live_d, other=0.0).to(tl.float32)
    if NORM:
        q_scale = tl.rsqrt(tl.sum(q * q, 1) / D + eps)[:, None]
        k_scale = tl.rsqrt(tl.sum(k * k, 0) / D + eps)
        q = _normed(q, norm_q, q_scale, d[None, :], live_d[None, :], dtype)
        q2 = _normed(q2, norm_q, q_scale, partner[None, :], live_d[None, :], dtype)
        k = _normed(k, norm_k, k_scale, d, live_d, dtype)
        k2 = _normed(k2, norm_k, k_scale, partner, live_d, dtype)
    q = (q * c[None, :] + q2 * s[None, :]).to(dtype)
    k = (k * c + k2 * s).to(dtype)
    v = tl.load(base + (H + K + head) * D + d, mask=live_d, other=0.0)
    here = slot * slot_stride + head * head_stride
    first = split == 0
    tl.store(keys + here + past.to(tl.int64) * D + d, k, mask=live_d & first)
    tl.store(values + here + past.to(tl.int64) * D + d, v, mask=live_d & first)
    score = tl.sum(q.to(tl.float32) * k.to(tl.float32)[None, :], 1) * scale
    top = tl.where(first, score, float("-inf"))
    total = tl.where(first, tl.full((GP,), 1.0, tl.float32), 0.0)
    acc = tl.where(first, tl.broadcast_to(v.to(tl.float32)[None, :], (GP, BD)), 0.0)
    each = tl.cdiv(tl.cdiv(past, splits), BN) * BN
    end = tl.minimum(split * each + each, past)
    for at in range(split * each, end, BN):
        live_n = at + n < end
        block = here + (at + n)[:, None] * D + d[None, :]
        live = live_n[:, None] & live_d[None, :]
        scores = tl.dot(q, tl.trans(tl.load(keys + block, mask=live, other=0.0)), input_precision="ieee") * scale
        scores = tl.where(live_n[None, :], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        fade = tl.exp2(top - new_top)
        weights = tl.exp2(scores - new_top[:, None])
        total = total * fade + tl.sum(weights, 1)
        acc = acc * fade[:, None]
        acc += tl.dot(weights.to(dtype), tl.load(values + block, mask=live, other=0.0), input_precision="ieee")
        top = new_top
    out_at = out + row * H * D + (head * G + g)[:, None] * D + d[None, :]
    if splits == 1:
        tl.store(out_at, (acc / total[:, None]).to(dtype), mask=live_q)
    else:
        group = row * K + head
        mine = (group * splits + split) * GP
        tl.store(part + (mine + g)[:, None] * BD + d[None, :], acc, cache_modifier=".cg")
        tl.store(part_max + mine + g, top, cache_modifier=".cg")
        tl.store(part_sum + mine + g, total, cache_modifier=".cg")
        tl.debug_barrier()  # all threads' stores come before the arrival that publishes them
        if tl.atomic_add(arrived + group, 1, sem="acq_rel") == splits - 1:
            top = tl.full((GP,), float("-inf"), tl.float32)
            total = tl.zeros((GP,), tl.float32)
            acc = tl.zeros((GP, BD), tl.float32)
            for i in range(splits):
                theirs = (group * splits + i) * GP
                their_top = tl.load(part_max + theirs + g, cache_modifier=".cg")
                new_top = tl.maximum(top, their_top)
                fade = tl.exp2(top - new_top)
                gain = tl.exp2(their_top - new_top)
                total = total * fade + tl.load(part_sum + theirs + g, cache_modifier=".cg") * gain
                theirs_acc = tl.load(part + (theirs + g)[:, None] * BD + d[None, :], cache_modifier=".cg")
                acc = acc * fade[:, None] + theirs_acc * gain[:, None]
                top = new_top
            tl.store(out_at, (acc / total[:, None]).to(dtype), mask=live_q)
            tl.store(arrived + group, 0)


class AttentionScratch:
    """Where the parts of a split decode attention meet, for up to `rows` rows; `arrived` is all zero between kernels."""

    def __init__(self, rows: int, shape: tuple[int, int, int], device: torch.device, programs: int = 264):
        H, K, D = shape
        self.programs = programs
        self.group = max(16, triton.next_power_of_2(H // K))
        self.width = max(16, triton.next_power_of_2(D))
        most = max(rows * K, programs + K)
        self.part = torch.empty(most * self.group * self.width, dtype=torch.float32, device=device)
        self.part_max = torch.empty(most * self.group, dtype=torch.float32, device=device)
        self.part_sum = torch.empty_like(self.part_max)
        self.arrived = torch.zeros(rows * K, dtype=torch.int32, device=device)

    def splits(self, rows: int, K: int) -> int:
        """As many parts as keep the card's multiprocessors busy (two programs each on a card of 132), 16 at most."""
        return max(1, min(16, self.programs // (rows * K)))


def decode_attention(
    qkv_B: torch.Tensor,
    layer_cache: torch.Tensor,
    row_slot_B: torch.Tensor,
    position: torch.Tensor,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: Norms,
    shape: tuple[int, int, int],
    eps: float,
    scratch: AttentionScratch,
) -> torch.Tensor:
    """One new token a row: `qkv` (B, (H + 2K) D) before the rotation. Writes its key and value to the cache at `position[slot]`
    and returns what it attends to there and before, (B, H D)."""
    H, K, D = shape
    B = len(qkv_B)
    out = qkv_B.new_empty(B, H * D)
    norm_q, norm_k = norms
    splits = scratch.splits(B, K)
    _decode_attention[(B, K, splits)](
        qkv_B, layer_cache[0], layer_cache[1], out, scratch.part, scratch.part_max, scratch.part_sum, scratch.arrived, row_slot_B,
        position, rope[0], rope[1], qkv_B if norm_q is None else norm_q, qkv_B if norm_k is None else norm_k, eps,
        1.4426950408889634 / D**0.5, layer_cache.stride(1), layer_cache.stride(2), splits,
        H, K, D, H // K, scratch.group, scratch.width, 64, norm_q is not None, num_warps=4, num_stages=3,
    )  # fmt: skip
    return out
