"""What an episode is played with: a plan of its own, and a hall that all episodes share."""

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.engines.base import Engine, Sampler
from coterie.grading.base import Grader
from coterie.protocols.base import Protocol
from coterie.tokens import ChatTokenizer
from coterie.types import Episode, Player, Seat, Task


@dataclass(frozen=True, slots=True)
class Replay:
    """An episode to be played again with message `turn` withheld from the other seats (see `types.Probe`)."""

    episode: Episode
    turn: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One episode to be played: `index` within its group, who sits where, and the names of its stream of sampling noise."""

    task: Task
    index: int
    cast: Mapping[Seat, Player]
    noise: tuple[str | int, ...]
    replay: Replay | None = None


@dataclass(frozen=True, slots=True)
class Hall:
    """All that episodes share: protocol, engine, tokenizer, grader, sampler and the run's seed."""

    protocol: Protocol
    engine: Engine
    tokenizer: ChatTokenizer
    grader: Grader
    sampler: Sampler
    seed: int
