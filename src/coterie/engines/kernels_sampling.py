# pyright: reportMissingImports=false, reportIndexIssue=false
"""Sampling on the device: the inverse CDF of `sampling`, in two passes over the logits, and the bookkeeping of each sequence.

The first kernel leaves the largest logit and the sum of exponentials of each block of the vocabulary; the second finds the block
and the place in it where the CDF passes the row's uniform, and writes id and log-probability where the sequence's slot keeps them.
Sums of exponentials are carried in float64 from the block on, as `sampling.sample` carries its CDF. A greedy row (temperature 0)
takes the first of the likeliest ids and reports the log-probability at temperature 1.
"""

import torch
import triton
import triton.language as tl

from coterie.engines.slots import Slots

_BLOCK = 4096


@triton.jit
def _block_sums(logits, row_slot, temperature, block_top, block_sum, block_best, V, NB, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    block = tl.program_id(1)
    t = tl.load(temperature + tl.load(row_slot + row))
    t = tl.where(t == 0.0, 1.0, t)
    i = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits + row.to(tl.int64) * V + i, mask=i < V, other=float("-inf")).to(tl.float32) / t
    top, best = tl.max(x, 0, return_indices=True)
    safe = tl.where(top == float("-inf"), 0.0, top)
    tl.store(block_top + row * NB + block, top)
    tl.store(block_sum + row * NB + block, tl.sum(tl.exp(x - safe), 0))
    tl.store(block_best + row * NB + block, block * BLOCK + best)


@triton.jit
def _choose(
    logits, row_slot, block_top, block_sum, block_best, temperature, last, position, count, cap, done, uniforms,
    out_ids, out_logprobs, stop_ids, V, NB, width, stops, BLOCK: tl.constexpr, NBP: tl.constexpr, STOPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    slot = tl.load(row_slot + row).to(tl.int64)
    alive = tl.load(done + slot) == 0
    t = tl.load(temperature + slot)
    greedy = t == 0.0
    t = tl.where(greedy, 1.0, t)
    b = tl.arange(0, NBP)
    tops = tl.load(block_top + row * NB + b, mask=b < NB, other=float("-inf"))
    sums = tl.load(block_sum + row * NB + b, mask=b < NB, other=0.0)
    top = tl.max(tops, 0)
    masses = sums.to(tl.float64) * tl.exp(tops - top).to(tl.float64)
    total = tl.sum(masses, 0)
    step = tl.load(count + slot)
    target = tl.load(uniforms + slot * width + step, mask=alive, other=0.0).to(tl.float64) * total
    block = tl.sum((tl.cumsum(masses, 0) <= target).to(tl.int32), 0)
    block = tl.minimum(block, tl.max(tl.where(masses > 0, b, 0), 0))
    before = tl.sum(tl.where(b < block, masses, 0.0), 0)
    i = tl.arange(0, BLOCK)
    x = tl.load(logits + row * V + block * BLOCK + i, mask=block * BLOCK + i < V, other=float("-inf")).to(tl.float32) / t
    mass = tl.exp(x - top)
    inside = tl.sum((tl.cumsum(mass.to(tl.float64), 0) + before <= target).to(tl.int32), 0)
    inside = tl.minimum(inside, tl.max(tl.where(mass > 0, i, 0), 0))
    best = tl.min(tl.where(tops == top, tl.load(block_best + row * NB + b, mask=b < NB, other=2147483647), 2147483647), 0)
    token = tl.where(greedy, best, block * BLOCK + inside)
    logprob = tl.load(logits + row * V + token).to(tl.float32) / t - top - tl.log(total.to(tl.float32))
    tl.store(out_ids + slot * width + step, token, mask=alive)
    tl.store(out_logprobs + slot * width + step, logprob, mask=alive)
    s = tl.arange(0, STOPS)
    stopped = tl.sum((tl.load(stop_ids + s, mask=s < stops, other=-1) == token).to(tl.int32), 0) > 0
    ended = stopped | (step + 1 >= tl.load(cap + slot))
    tl.store(last + slot, token, mask=alive)
    tl.store(count + slot, step + 1, mask=alive)
    # An ended sequence keeps its last position: until its row is dropped it overwrites the same place of its own slot.
    tl.store(position + slot, tl.load(position + slot) + 1, mask=alive & (ended == 0))
    tl.store(done + slot, 1, mask=alive & ended)


def choose(logits_BV: torch.Tensor, row_slot_B: torch.Tensor, slots: Slots, stop_ids: torch.Tensor) -> None:
    """Sample the next token of each row's sequence and advance it: id, log-probability, count, position, done."""
    B, V = logits_BV.shape
    blocks = triton.cdiv(V, _BLOCK)
    tops = torch.empty(B, blocks, dtype=torch.float32, device=logits_BV.device)
    sums, best = torch.empty_like(tops), torch.empty_like(tops, dtype=torch.int32)
    _block_sums[(B, blocks)](logits_BV, row_slot_B, slots.temperature, tops, sums, best, V, blocks, _BLOCK, num_warps=8)
    _choose[(B,)](
        logits_BV, row_slot_B, tops, sums, best, slots.temperature, slots.last, slots.position, slots.count, slots.cap, slots.done,
        slots.uniforms, slots.ids, slots.logprobs, stop_ids, V, blocks, slots.width, len(stop_ids), _BLOCK,
        triton.next_power_of_2(blocks), max(2, triton.next_power_of_2(len(stop_ids))), num_warps=8,
    )  # fmt: skip


def truncate(logits_BV: torch.Tensor, row_slot_B: torch.Tensor, slots: Slots) -> torch.Tensor:
    """Logits with what top-k and top-p cut set to -inf, as `sampling` cuts; rows without either are unchanged. Slow (it sorts),
    and only evaluation asks for it."""
    rows = row_slot_B.long()
    temperature, top_k, top_p = (t[rows][:, None] for t in (slots.temperature, slots.top_k, slots.top_p))
    scaled = logits_BV.float() / torch.where(temperature == 0, 1.0, temperature)
    ordered, order = scaled.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(logits_BV.shape[-1], device=logits_BV.device)[None]
    cut = (top_k > 0) & (rank >= top_k)
    probabilities = torch.softmax(ordered.masked_fill(cut, -torch.inf), dim=-1)
    cut |= (top_p < 1.0) & (probabilities.cumsum(-1) - probabilities >= top_p)
    return logits_BV.masked_fill(torch.zeros_like(cut).scatter(1, order, cut), -torch.inf)
