"""From credited groups to padded tensors.

Where a message begins and ends is told by lengths, never by token ids, so that the pad id may be any id, the end-of-message token
included (TRL #4974, RAGEN #59).
"""

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


def micro_batches(lengths: Sequence[int], max_tokens: int) -> list[list[int]]:
    """Indices of rows, packed so that each batch's padded size (longest row times rows) is at most `max_tokens`.

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


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows, right-padded, and their completion tokens laid end to end. B rows, T padded length, N completion tokens in all.

    No attention mask is needed: with padding on the right, a causal mask hides every pad from every real token, and positions
    count from each row's first token.
    """

    ids_BT: Tensor
    """int64; prompt, completion, pads."""
    row_N: Tensor
    """int64; the row of each completion token."""
    source_N: Tensor
    """int64; the position whose output predicts the token: one before the token's own."""
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


def collate(rows: Sequence[Row], weights: Sequence[float], *, pad_id: int = 0, device: torch.device | str = "cpu") -> Batch:
    """Pad `rows` into a batch. `weights[b]` is the weight of each completion token of row `b`; `pad_id` may be any valid id."""
    width = max(row_length(row) for row in rows)
    ids, row_of, source, target, sampler, advantage, weight, temperature = [], [], [], [], [], [], [], []
    for b, (row, row_weight) in enumerate(zip(rows, weights, strict=True)):
        prompt, count = len(row.prompt_ids), len(row.completion_ids)
        ids.append([*row.prompt_ids, *row.completion_ids] + [pad_id] * (width - prompt - count))
        row_of += [b] * count
        source += range(prompt - 1, prompt - 1 + count)
        target += row.completion_ids
        sampler += row.logprobs
        advantage += [row.advantage] * count
        weight += [row_weight] * count
        temperature += [row.temperature] * count

    def whole(values):
        return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)

    def real(values):
        return torch.tensor(values, dtype=torch.float32).to(device, non_blocking=True)

    return Batch(
        ids_BT=whole(ids),
        row_N=whole(row_of),
        source_N=whole(source),
        target_N=whole(target),
        sampler_logprob_N=real(sampler),
        advantage_N=real(advantage),
        weight_N=real(weight),
        temperature_N=real(temperature),
    )
