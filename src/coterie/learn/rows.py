"""From credited groups to tensors, padded or packed.

Where a message begins and ends is told by lengths, never by token ids, so that the pad id may be any id, the end-of-message token
included (TRL #4974, RAGEN #59).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from coterie.types import POLICY, Group, Row


def rows_from_group(group: Group, advantages: Sequence[Sequence[float]]) -> list[Row]:
    """One row per message that the policy spoke, in the order of episodes and messages; the ids are the message's own tuples.

    `advantages[e][m]` belongs to message `m` of episode `e`. What other players said (base, frozen copies, remote models) is in
    the prompts of later messages and nowhere else, so it is never trained (NeMo-RL PR #2176).

    Raises ValueError when the shapes disagree, a message is empty, or it was sampled at a temperature of 0 (no policy gradient).
    """
    rows = []
    for episode, credits in zip(group.episodes, advantages, strict=True):
        for message, advantage in zip(episode.messages, credits, strict=True):
            if message.player != POLICY:
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


def chains(rows: Sequence[Row]) -> list[list[int]]:
    """Indices of rows such that within each list every row, prompt and completion, is how the next one's prompt begins.

    A seat's later prompt usually repeats its earlier one and what it answered, id for id, so that one pass over the longest row of
    a chain gives the log-probs of all of them: a causal model computes the same for them apart. Ids are compared, never assumed:
    text that was read into other ids than were sampled starts a chain of its own. Every row is in exactly one chain.
    """
    ends: list[list[int]] = []
    by_start: dict[tuple[int, ...], list[list[int]]] = {}
    for index in sorted(range(len(rows)), key=lambda i: (row_length(rows[i]), i)):
        prompt = rows[index].prompt_ids
        candidates = by_start.setdefault(prompt[:1], [])
        for chain in candidates:
            last, length = rows[chain[-1]], row_length(rows[chain[-1]])
            if length <= len(prompt) and prompt[:length] == (*last.prompt_ids, *last.completion_ids):
                chain.append(index)
                break
        else:
            candidates.append([index])
            ends.append(candidates[-1])
    return ends


def micro_batches(lengths: Sequence[int], max_tokens: int, *, packed: bool = False) -> list[list[int]]:
    """Indices of rows, cut so that each batch's size is at most `max_tokens`: its longest row times its rows, or, where rows are
    packed without padding, the sum of their lengths.

    Longest first: rows of like length meet, and a budget that does not fit the memory fails at once rather than late in a step.
    Ties keep their order, so the plan is a function of the lengths alone. A row longer than the budget is alone.
    """
    plan: list[list[int]] = []
    longest = total = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        size = total + lengths[index] if packed else longest * (len(plan[-1]) + 1 if plan else 1)
        if plan and size <= max_tokens:
            plan[-1].append(index)
            total += lengths[index]
        else:
            plan.append([index])
            longest = total = lengths[index]
    return plan


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as tensors, and their completion tokens laid end to end. N completion tokens in all, R rows.

    Padded: B = R rows of T positions, pads on the right. No attention mask is needed: a causal mask hides every pad from every real
    token, and positions count from each row's first token. Packed: the longest row of each chain, all end to end in one (B = 1),
    with `lengths` to tell them apart, which only `packed.packed_logprobs` understands.
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
    lengths: tuple[int, ...] = ()
    """Tokens of each chain where rows are packed; empty where they are padded."""
    position_BT: Tensor | None = None
    """int64; where rows are packed, positions from each chain's first token."""
    bounds_R: Tensor | None = None
    """int32, chains + 1 values; where rows are packed, where each chain begins, and the end of the last."""


def collate(rows: Sequence[Row], weights: Sequence[float], *, pad_id: int = 0, device: torch.device | str = "cpu") -> Batch:
    """Pad `rows` into a batch. `weights[b]` is the weight of each completion token of row `b`; `pad_id` may be any valid id."""
    width = max(row_length(row) for row in rows)
    ids = [[*row.prompt_ids, *row.completion_ids] + [pad_id] * (width - row_length(row)) for row in rows]
    completions = _completions(rows, weights, range(len(rows)), [0] * len(rows), device)
    return Batch(_tensor(ids, device), *completions)


def pack(
    rows: Sequence[Row],
    weights: Sequence[float],
    linked: Sequence[Sequence[int]] | None = None,
    *,
    device: torch.device | str = "cpu",
) -> Batch:
    """Lay `rows` end to end in a batch without padding, the rows of each list of `linked` (see `chains`) on top of each other;
    each alone when that is absent."""
    if linked is None:
        linked = [[index] for index in range(len(rows))]
    longest = [rows[chain[-1]] for chain in linked]
    lengths = [row_length(row) for row in longest]
    bounds = [0, *itertools.accumulate(lengths)]
    order = [index for chain in linked for index in chain]
    starts = [start for start, chain in zip(bounds, linked, strict=False) for _ in chain]
    ids = [token for row in longest for token in (*row.prompt_ids, *row.completion_ids)]
    positions = [position for length in lengths for position in range(length)]
    picked, picked_weights = [rows[i] for i in order], [weights[i] for i in order]
    return Batch(
        _tensor([ids], device),
        *_completions(picked, picked_weights, [0] * len(order), starts, device),
        lengths=tuple(lengths),
        position_BT=_tensor([positions], device),
        bounds_R=_tensor(bounds, device, torch.int32),
    )


def _completions(
    rows: Sequence[Row], weights: Sequence[float], lines: Sequence[int], starts: Sequence[int], device: torch.device | str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """What a batch holds of completion tokens, in the order of its fields, with each row at position `start` of line `line`."""
    row_of, source, target, sampler, advantage, weight, temperature = [], [], [], [], [], [], []
    for row, row_weight, line, start in zip(rows, weights, lines, starts, strict=True):
        first, count = start + len(row.prompt_ids) - 1, len(row.completion_ids)
        row_of += [line] * count
        source += range(first, first + count)
        target += row.completion_ids
        sampler += row.logprobs
        advantage += [row.advantage] * count
        weight += [row_weight] * count
        temperature += [row.temperature] * count
    whole = (_tensor(values, device) for values in (row_of, source, target))
    real = (_tensor(values, device, torch.float32) for values in (sampler, advantage, weight, temperature))
    return (*whole, *real)  # pyright: ignore[reportReturnType]


def _tensor(values: Sequence, device: torch.device | str, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)
