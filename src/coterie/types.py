"""The vocabulary of coterie: small frozen dataclasses, and nothing else.

Every other module speaks in these words (`docs/design.md` lists them). This module imports no other part of the package and
no tensor library, so protocols, credit rules and draws can be written and tested without either.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Seat = str
"""A place at the table, for example "A"."""

Player = str
"""What sits in a seat for one episode: `POLICY`, `BASE`, or the name of a further player."""

POLICY: Player = "policy"
"""The policy in training: the base weights with the current adapter."""

BASE: Player = "base"
"""The untrained base: the same weights with the adapter off."""

Stop = Literal["eos", "length"]
"""Why a message ended: the model sampled an end-of-message token, or the cap cut it."""


@dataclass(frozen=True, slots=True)
class Task:
    """One problem.

    `private` maps a seat to the facts that only this seat is told; `ask` is the question that every seat sees. `question` is the
    whole problem in one text (what one copy would be given alone); it identifies the problem when sets are checked for overlap.
    """

    id: str
    question: str
    answer: str
    ask: str
    private: Mapping[Seat, tuple[str, ...]] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class View:
    """What a seat sees when it is asked to speak: the chat messages of its prompt, each `(role, content)`, in order.

    Roles are those of the model's chat template ("system", "user", "assistant"). Content is plain text: whatever it contains, it
    is encoded without control tokens.
    """

    messages: tuple[tuple[str, str], ...]
    sampled: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """For assistant messages that the seat said itself: place in `messages` and the ids that were sampled. Those ids stand in the
    prompt as they are, so that it extends the prompt that they were sampled from."""


@dataclass(frozen=True, slots=True)
class Message:
    """One utterance. `ids` are the sampled ids themselves and are never re-tokenised; they end with the end-of-message token
    exactly when `stop == "eos"`. `logprobs[t]` is the log-probability (nats) of `ids[t]` under the sampler at `temperature`.
    """

    seat: Seat
    player: Player
    turn: int
    final: bool
    prompt_ids: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop
    text: str
    temperature: float
    policy_version: int
    heard: tuple[int, ...] = ()
    """Turns of the earlier messages that its prompt was made from, the seat's own included: who hears what."""
    score: float | None = None
    """The grade of the answer that it holds, where it is graded: final messages, and others that a protocol wants graded."""
    hidden: bool = False
    """In a replay: this message is withheld from all seats but its own (see `Probe`)."""


@dataclass(frozen=True, slots=True)
class Episode:
    """One playing of a protocol on a task.

    `scores` holds the graded final answer of each seat that gave one (1.0 right, 0.0 wrong, graded values between). A seat whose
    grader failed is in `errors` with the reason and not in `scores`; for a message that does not count for its seat the key is
    "A, message 1". `reward` is the team reward: the mean of the scores unless the protocol says otherwise, or None when any grader
    failed, so that a broken grader is never read as a wrong answer.
    """

    task_id: str
    index: int
    cast: Mapping[Seat, Player]
    messages: tuple[Message, ...]
    scores: Mapping[Seat, float]
    reward: float | None
    errors: Mapping[Seat, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """All episodes of one task that are kept in one step, and `pool`: every episode drawn for the task, kept or not. Baselines are
    taken over the pool. With a fixed draw the two agree."""

    task: Task
    episodes: tuple[Episode, ...]
    pool: tuple[Episode, ...]

    @property
    def pool_rewards(self) -> tuple[float | None, ...]:
        """The team reward of every episode drawn; None where grading failed."""
        return tuple(episode.reward for episode in self.pool)


@dataclass(frozen=True, slots=True)
class Probe:
    """A question that a credit rule asks: how would kept episode `episode` (its place in `Group.episodes`) have gone without
    message `turn`?

    It is answered by a replay: the episode is played again with that message withheld from the other seats. Messages that neither
    heard it nor anything that changed are taken over as they were; the others are sampled anew. `repeat` tells replays of one
    question apart.
    """

    episode: int
    turn: int
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Row:
    """What the learner sees of one message: `prompt_ids` are context, `completion_ids` are trained with one advantage.

    `logprobs` are the sampler's (nats). None for a completion that nobody here has sampled: its log-probabilities are then those of
    the very step that learns from it, so that every ratio is 1 and nothing is corrected.
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    advantage: float
    temperature: float
    policy_version: int
    task_id: str
    episode: int
    seat: Seat
    turn: int


class CoterieError(Exception):
    """A mistake in what the user gave: one sentence that names the file or key and the remedy. The command line exits with 2."""
