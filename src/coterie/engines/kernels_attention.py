# pyright: reportMissingImports=false, reportIndexIssue=false
"""Grouped-query attention of one new token a row: rotates it, writes it to the cache and attends, in one kernel.

The past is cut into parts so that few rows still fill the card; a past of one tile is not cut. Shapes and rounding as in `kernels`.
"""

import torch
import triton
import triton.language as tl

from coterie.engines import kernels

BLOCK, WARPS, STAGES = 128, 4, 1
"""Positions of a tile, warps and pipeline stages; measured in `bench/NOTES.md`."""


@triton.jit
def _normed(x, weight, scale, d, live, dtype):
    x = (x * scale).to(dtype).to(tl.float32)
    return (x * tl.load(weight + d, mask=live, other=0.0).to(tl.float32)).to(dtype).to(tl.float32)


@triton.jit
def _attend(q, tile_k, tile_v, live_n, top, total, acc, scale):
    """One tile of keys and values into a running softmax (base 2). A tile may be empty."""
    scores = tl.dot(q, tl.trans(tile_k), input_precision="ieee") * scale
    scores = tl.where(live_n[None, :], scores, float("-inf"))
    new_top = tl.maximum(top, tl.max(scores, 1))
    safe = tl.where(new_top == float("-inf"), 0.0, new_top)
    fade = tl.exp2(top - safe)
    weights = tl.exp2(scores - safe[:, None])
    acc = acc * fade[:, None] + tl.dot(weights.to(tile_v.dtype), tile_v, input_precision="ieee")
    return new_top, total * fade + tl.sum(weights, 1), acc


@triton.jit(do_not_specialize=["splits"])
def _decode_attention(
    qkv, keys, values, out, part, part_max, part_sum, arrived, row_slot, row_past, cos, sin, norm_q, norm_k, eps, scale,
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
    past = tl.load(row_past + row)
    used = tl.maximum(tl.minimum(splits, tl.cdiv(past, BN)), 1)
    if split >= used:
        return
    dtype = qkv.dtype.element_ty
    half: tl.constexpr = D // 2
    g = tl.arange(0, GP)
    d = tl.arange(0, BD)
    n = tl.arange(0, BN)
    live_d = d < D
    live_q = (g < G)[:, None] & live_d[None, :]
    # The first tile of the past is asked for before anything is computed: with short pasts it is the only one.
    here = slot * slot_stride + head * head_stride
    each = tl.cdiv(tl.cdiv(past, used), BN) * BN
    start = split * each
    end = tl.minimum(start + each, past)
    live_n = start + n < end
    tile = here + (start + n)[:, None] * D + d[None, :]
    tile_k = tl.load(keys + tile, mask=live_n[:, None] & live_d[None, :], other=0.0)
    tile_v = tl.load(values + tile, mask=live_n[:, None] & live_d[None, :], other=0.0)
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
    first = split == 0
    tl.store(keys + here + past.to(tl.int64) * D + d, k, mask=live_d & first)
    tl.store(values + here + past.to(tl.int64) * D + d, v, mask=live_d & first)
    score = tl.sum(q.to(tl.float32) * k.to(tl.float32)[None, :], 1) * scale
    top = tl.where(first, score, float("-inf"))
    total = tl.where(first, tl.full((GP,), 1.0, tl.float32), 0.0)
    acc = tl.where(first, tl.broadcast_to(v.to(tl.float32)[None, :], (GP, BD)), 0.0)
    top, total, acc = _attend(q, tile_k, tile_v, live_n, top, total, acc, scale)
    for at in range(start + BN, end, BN):
        more_n = at + n < end
        more = here + (at + n)[:, None] * D + d[None, :]
        more_k = tl.load(keys + more, mask=more_n[:, None] & live_d[None, :], other=0.0)
        more_v = tl.load(values + more, mask=more_n[:, None] & live_d[None, :], other=0.0)
        top, total, acc = _attend(q, more_k, more_v, more_n, top, total, acc, scale)
    out_at = out + row * H * D + (head * G + g)[:, None] * D + d[None, :]
    if used == 1:
        tl.store(out_at, (acc / total[:, None]).to(dtype), mask=live_q)
    else:
        group = row * K + head
        mine = (group * splits + split) * GP
        tl.store(part + (mine + g)[:, None] * BD + d[None, :], acc, cache_modifier=".cg")
        tl.store(part_max + mine + g, top, cache_modifier=".cg")
        tl.store(part_sum + mine + g, total, cache_modifier=".cg")
        tl.debug_barrier()  # all threads' stores come before the arrival that publishes them
        if tl.atomic_add(arrived + group, 1, sem="acq_rel") == used - 1:
            top = tl.full((GP,), float("-inf"), tl.float32)
            total = tl.zeros((GP,), tl.float32)
            acc = tl.zeros((GP, BD), tl.float32)
            for i in range(used):
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
    past_B: torch.Tensor,
    rope: tuple[torch.Tensor, torch.Tensor],
    norms: kernels.Norms,
    shape: tuple[int, int, int],
    eps: float,
    scratch: AttentionScratch,
) -> torch.Tensor:
    """One new token a row: `qkv` (B, (H + 2K) D) before the rotation. Writes its key and value to its
    slot of the cache at position `past` and returns what it attends to there and before, (B, H D)."""
    H, K, D = shape
    B = len(qkv_B)
    out = qkv_B.new_empty(B, H * D)
    norm_q, norm_k = norms
    splits = scratch.splits(B, K)
    _decode_attention[(B, K, splits)](
        qkv_B, layer_cache[0], layer_cache[1], out, scratch.part, scratch.part_max, scratch.part_sum, scratch.arrived, row_slot_B,
        past_B, rope[0], rope[1], qkv_B if norm_q is None else norm_q, qkv_B if norm_k is None else norm_k, eps,
        1.4426950408889634 / D**0.5, layer_cache.stride(1), layer_cache.stride(2), splits,
        H, K, D, H // K, scratch.group, scratch.width, BLOCK, norm_q is not None, num_warps=WARPS, num_stages=STAGES,
    )  # fmt: skip
    return out
