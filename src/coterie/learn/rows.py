"""From credited groups to tensors, padded or packed.

Where a message begins and ends is told by lengths, never by token ids, so that the pad id may be any id, the end-of-message token
included (TRL #4974, RAGEN #59).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.types import POLICY, Group, Row

UNSAMPLED = math.inf
"""Stands in a batch for the log-probability of a token that nobody here has sampled. No log-probability is positive; NaN, which a
faulty sampler gives, stays what it is."""


def rows_from_group(group: Group, advantages: Sequence[Sequence[float | None]]) -> list[Row]:
    """One row per message that the policy spoke, in the order of episodes and messages; the ids are the message's own tuples.

    `advantages[e][m]` belongs to message `m` of episode `e`; None leaves the message out. What other players said (base, frozen
    copies, remote models) is in the prompts of later messages and nowhere else, so it is never trained (NeMo-RL PR #2176).

    Raises ValueError when the shapes disagree, a message is empty, or it was sampled at a temperature of 0 (no policy gradient).
    """
    rows = []
    for episode, credits in zip(group.episodes, advantages, strict=True):
        for message, advantage in zip(episode.messages, credits, strict=True):
            if message.player != POLICY or advantage is None:
                continue
            where = f"task {episode.task_id}, episode {episode.index}, seat {message.seat}, turn {message.turn}"
            if not message.prompt_ids or not message.ids:
                raise ValueError(f"{where}: a message needs at least one prompt id and one sampled id")
            if len(message.logprobs) != len(message.ids):
                raise ValueError(f"{where}: {len(message.ids)} ids but {len(message.logprobs)} log-probabilities")
            if not message.temperature > 0:
                raise ValueError(f"{where}: sampled at temperature {message.temperature}; training needs one above 0")
            rows.append(
                Row(
                    prompt_ids=message.prompt_ids,
                    completion_ids=message.ids,
                    logprobs=message.logprobs,
                    advantage=advantage,
                    temperature=message.temperature,
                    policy_version=message.policy_version,
                    task_id=episode.task_id,
                    episode=episode.index,
                    seat=message.seat,
                    turn=message.turn,
                )
            )
    return rows


def row_length(row: Row) -> int:
    """Tokens of a row, prompt and completion."""
    return len(row.prompt_ids) + len(row.completion_ids)


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of rows, cut so that each batch's padded size (longest row times rows) is at most `max_tokens`.

    Longest first: rows of like length meet, and a budget that does not fit the memory fails at once rather than late in a step.
    Ties keep their order, so the plan is a function of the lengths alone. A row longer than the budget is alone.
    """
    plan: list[list[int]] = []
    longest = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if plan and longest * (len(plan[-1]) + 1) <= max_tokens:
            plan[-1].append(index)
        else:
            plan.append([index])
            longest = lengths[index]
    return plan


def packed_shares(rows: Sequence[Row], world: int) -> list[list[int]]:
    """Indices of rows for each of `world` processes: in the order of their ids, so that rows that begin alike are neighbours (see
    `pack`), cut into stretches of like numbers of tokens."""
    order = sorted(range(len(rows)), key=lambda i: _ids(rows[i]))
    ends = list(itertools.accumulate(_costs([rows[i] for i in order])))
    shares: list[list[int]] = [[] for _ in range(world)]
    for index, end in zip(order, ends, strict=True):
        shares[(end - 1) * world // ends[-1]].append(index)
    return shares


def packed_batches(rows: Sequence[Row], max_tokens: int) -> list[list[int]]:
    """Indices of rows, in order, cut so that each batch's packed size is at most `max_tokens`; a row longer than it is alone."""
    plan: list[list[int]] = []
    total = 0
    for index, cost in enumerate(_costs(rows)):
        if plan and total + cost <= max_tokens:
            plan[-1].append(index)
            total += cost
        else:
            plan.append([index])
            total = row_length(rows[index])
    return plan


def _ids(row: Row) -> tuple[int, ...]:
    return (*row.prompt_ids, *row.completion_ids)


def _costs(rows: Sequence[Row]) -> list[int]:
    """Tokens of each row that the row before it does not begin with."""
    every = [_ids(row) for row in rows]
    return [len(ids) - _shared(ids, before) for ids, before in zip(every, [(), *every], strict=False)]


def _shared(ids: Sequence[int], others: Sequence[int]) -> int:
    """How many ids two sequences have in common at their beginning."""
    return next((i for i, (one, other) in enumerate(zip(ids, others, strict=False)) if one != other), min(len(ids), len(others)))


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as tensors, and their completion tokens laid end to end. N completion tokens in all, R rows.

    Padded: B = R rows of T positions, pads on the right. No attention mask is needed: a causal mask hides every pad from every real
    token, and positions count from each row's first token. Packed: B = 1, and `layout` says which tokens are whose.
    """

    ids_BT: Tensor
    """int64; prompt, completion, pads."""
    row_N: Tensor
    """int64; the line of `ids_BT` of each completion token."""
    source_N: Tensor
    """int64; the position in that line whose output predicts the token: one before the token's own."""
    target_N: Tensor
    """int64; the token."""
    sampler_logprob_N: Tensor
    """float32, nats."""
    advantage_N: Tensor
    """float32, reward units."""
    weight_N: Tensor
    """float32; what the token's loss is multiplied by (`loss.token_weights`)."""
    temperature_N: Tensor
    """float32."""
    layout: "Layout | None" = None
    """Where rows are packed; only `packed.packed_logprobs` understands it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Which tokens of a packed batch belong to which row. T tokens, R rows that have tokens of their own, M tokens of all rows.

    A row's own tokens, which are its end, lie together. What it begins with may be another row's tokens, which are then computed
    once, for both. So queries are T and keys M: a row's keys are its tokens from its first to its last, own or not.
    """

    own: tuple[int, ...]
    """R numbers: own tokens of each row."""
    whole: tuple[int, ...]
    """R numbers: all tokens of each row."""
    position_T: Tensor
    """int64; positions from each row's first token."""
    own_bounds: Tensor
    """int32, R + 1 values: where each row's own tokens begin, and the end of the last."""
    whole_bounds: Tensor
    """int32, R + 1 values: the same of all its tokens."""
    key_M: Tensor | None
    """int64; the place in T of each key; None where all rows are their own and it would be 0, 1, 2, ..."""


def collate(rows: Sequence[Row], weights: Sequence[float], *, pad_id: int = 0, device: torch.device | str = "cpu") -> Batch:
    """Pad `rows` into a batch. `weights[b]` is the weight of each completion token of row `b`; `pad_id` may be any valid id."""
    width = max(row_length(row) for row in rows)
    ids = [[*row.prompt_ids, *row.completion_ids] + [pad_id] * (width - row_length(row)) for row in rows]
    completions = _completions(rows, weights, range(len(rows)), [range(width)] * len(rows), device)
    return Batch(_tensor(ids, device), *completions)


def pack(rows: Sequence[Row], weights: Sequence[float], *, device: torch.device | str = "cpu") -> Batch:
    """Lay `rows` end to end in a batch without padding, computing what a row begins with only once if the row before begins with
    it too: a seat's instructions, the facts of a task, a conversation so far. A causal model gives those tokens the same states in
    both. Ids are compared, never assumed. Any order of rows is right; that of `packed_shares` leaves the fewest tokens."""
    ids, positions, keys, places = [], [], [], []
    own, whole = [], []
    before: tuple[int, ...] = ()
    place: list[int] = []
    for row in rows:
        every = _ids(row)
        shared = _shared(every, before)
        place = [*place[:shared], *range(len(ids), len(ids) + len(every) - shared)]
        places.append(place)
        if shared < len(every):
            ids += every[shared:]
            positions += range(shared, len(every))
            keys += place
            own.append(len(every) - shared)
            whole.append(len(every))
        before = every
    layout = Layout(
        own=tuple(own),
        whole=tuple(whole),
        position_T=_tensor(positions, device),
        own_bounds=_tensor([0, *itertools.accumulate(own)], device, torch.int32),
        whole_bounds=_tensor([0, *itertools.accumulate(whole)], device, torch.int32),
        key_M=_tensor(keys, device) if len(keys) > len(ids) else None,
    )
    return Batch(_tensor([ids], device), *_completions(rows, weights, [0] * len(rows), places, device), layout=layout)


def _completions(
    rows: Sequence[Row], weights: Sequence[float], lines: Sequence[int], places: Sequence[Sequence[int]], device: torch.device | str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What a batch holds of completion tokens, in the order of its fields; a row's tokens are at `places` of line `line`."""
    row_of, source, target, sampler, advantage, weight, temperature = [], [], [], [], [], [], []
    for row, row_weight, line, place in zip(rows, weights, lines, places, strict=True):
        first, count = len(row.prompt_ids) - 1, len(row.completion_ids)
        row_of += [line] * count
        source += place[first : first + count]
        target += row.completion_ids
        sampler += [UNSAMPLED] * count if row.logprobs is None else row.logprobs
        advantage += [row.advantage] * count
        weight += [row_weight] * count
        temperature += [row.temperature] * count
    whole = (_tensor(values, device) for values in (row_of, source, target))
    real = (_tensor(values, device, torch.float32) for values in (sampler, advantage, weight, temperature))
    return (*whole, *real)  # pyright: ignore[reportReturnType]


def _tensor(values: Sequence, device: torch.device | str, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
