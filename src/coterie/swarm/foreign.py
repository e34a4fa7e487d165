"""Others' text as this node's own experience: a foreign group becomes a `Group` like those that the node plays, so that one credit
rule, one loss and one optimiser step serve both.

Token ids of another model mean nothing here, so text is encoded anew (SAPO, Algorithm 1: the receiver re-encodes, however unlikely
the text is to it). The prompt is what this node's own protocol shows of the task that it made itself; the completion is the text's
ids and the id that ends a message. Whatever the text holds, none of its ids is a control token (`ChatTokenizer.encode_text`), so it
cannot forge a turn.

Known failure: the text of a message that its generator's cap cut does not say so. Under the same cap and tokenizer it is as long as
the cap, the end does not fit, and it is left out; a generator with a smaller cap teaches to end in the middle of a sentence, though
such answers are seldom right. Nothing in an envelope could be believed about it. And bytes that were no text when they were sampled
(half a character) come back as other ids.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coterie.credit.base import Advantages
from coterie.hall import Hall
from coterie.play import rehearse
from coterie.protocols.base import Protocol
from coterie.swarm.words import NodeId, Rollouts, TaskRef
from coterie.tokens import ChatTokenizer
from coterie.types import POLICY, CoterieError, Episode, Group, Message, Task

STD_FLOOR = 1e-8


@dataclass(frozen=True, slots=True)
class Foreign:
    """A group that waits to be learned from. `rewards` are this node's own."""

    node: NodeId
    rollouts: Rollouts
    rewards: tuple[float, ...]
    logprobs: tuple[tuple[float, ...], ...] | None = None
    """Of each completion, under this node's policy when it was received; empty for one that does not fit. None: not kept."""

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_record(record: Mapping[str, Any]) -> "Foreign":
        rollouts = record["rollouts"]
        shared = Rollouts(
            **{**rollouts, "ref": TaskRef(**rollouts["ref"]), "completions": tuple(rollouts["completions"])},
        )
        logprobs = record["logprobs"]
        kept = None if logprobs is None else tuple(tuple(of_text) for of_text in logprobs)
        return Foreign(record["node"], shared, tuple(record["rewards"]), kept)


def as_group(foreign: Foreign, task: Task, hall: Hall) -> Group:
    """The group with `task`, made here, as if the policy had said it: kept are the completions that fit the protocol's cap and the
    context, and in the pool, over which baselines are taken, are all. Log-probabilities that were not kept are given as 0.0, to be
    replaced before learning."""
    prompt, cap = question_of(task, hall.protocol, hall.tokenizer)
    room = min(cap, hall.engine.context_length - len(prompt))
    seat = hall.protocol.seats[0]
    pool: list[Episode] = []
    for index, (text, reward) in enumerate(zip(foreign.rollouts.completions, foreign.rewards, strict=True)):
        ids = (*hall.tokenizer.encode_text(text), hall.tokenizer.end_id)
        said: tuple[Message, ...] = ()
        if len(ids) <= room:
            logprobs = (0.0,) * len(ids) if foreign.logprobs is None else foreign.logprobs[index]
            version = hall.engine.policy_version
            said = (
                Message(seat, POLICY, 0, True, prompt, ids, logprobs, "eos", text, hall.sampler.temperature, version, score=reward),
            )
        pool.append(Episode(task.id, index, {seat: POLICY}, said, {seat: reward}, reward))
    return Group(task, tuple(episode for episode in pool if episode.messages), tuple(pool))


def question_of(task: Task, protocol: Protocol, tokenizer: ChatTokenizer) -> tuple[tuple[int, ...], int]:
    """The prompt of the protocol's only message, and its cap in tokens.

    Raises CoterieError for a protocol with another number of messages, and for a task that it cannot play.
    """
    if reason := protocol.check(task):
        raise CoterieError(f"task {task.id} {reason}, which the protocol needs")
    table = rehearse(task, protocol, tokenizer)
    if len(table.messages) != 1:
        raise CoterieError('protocol: nodes of a swarm share answers of one message each; use protocol.kind = "solo" or "team"')
    return table.messages[0].prompt_ids, table.longest[1]


def divided(advantages: Advantages, rewards: Sequence[float | None]) -> Advantages:
    """Advantages of one group over the standard deviation of its rewards, n - 1 in the denominator, plus 1e-8: GRPO as SAPO's code
    has it (`torch.std` is that one). Exact zeros stay."""
    known = [reward for reward in rewards if reward is not None]
    by = (statistics.stdev(known) if len(known) > 1 else 0.0) + STD_FLOOR
    return [[None if a is None else a / by for a in of_episode] for of_episode in advantages]
