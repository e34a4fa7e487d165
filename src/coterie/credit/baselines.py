"""What credit rules share: who is paid at all, and how far a value lies above the mean of its like."""

import math
import re
import statistics
from collections.abc import Callable, Iterable

from coterie.types import Episode, Group, Message, Seat


def above_mean(pool: Iterable[float]) -> Callable[[float], float]:
    """A function of a value: how far it lies above the mean of `pool`, in the same units.

    The mean is the exact rational one, rounded once (`statistics.mean`). So the mean of equal values is that value, and when all
    of `pool` are equal each of them gets exactly 0.0: no rounding residue (about 1e-17) passes for a signal. For the same reason
    the order of the pool does not matter.

    Raises ValueError for a value that is not finite, and, when it is called, for an empty pool.
    """
    values = list(pool)
    if not all(math.isfinite(value) for value in values):
        raise ValueError(f"a score is not finite; a grader that fails must give no score, not {values}")
    mean = statistics.mean(values) if values else None

    def above(value: float) -> float:
        if mean is None:
            raise ValueError("an episode has a reward, but the pool has none to take the mean of")
        return value - mean

    return above


def graded(episodes: Iterable[Episode]) -> list[Episode]:
    """The episodes whose grading did not fail: the only ones that a baseline may be taken over."""
    return [episode for episode in episodes if episode.reward is not None]


def pay(group: Group, worth: Callable[[Episode, Message], float | None]) -> list[list[float | None]]:
    """`worth` of every message of the kept episodes; exactly 0.0 throughout an episode whose grading failed."""
    return [[0.0 if e.reward is None else worth(e, m) for m in e.messages] for e in group.episodes]


def score(message: Message) -> float:
    """The grade of a final message. Raises ValueError when it has none though its episode has a reward."""
    if message.score is None:
        raise ValueError(
            f"the final message of seat {message.seat} (turn {message.turn}) has no score, but its episode has a reward"
        )
    return message.score


def above_finals(group: Group) -> Callable[[Message], float]:
    """A function of a final message: its own score minus the mean score of all final messages of the pool."""
    above = above_mean(score(m) for e in graded(group.pool) for m in e.messages if m.final)
    return lambda message: above(score(message))


def role_of(seat: Seat) -> str:
    """What a seat has in common with its like: its name without a trailing number ("writer 2" -> "writer", "A" -> "A"). A name
    that is nothing but a number is a role of its own."""
    return re.sub(r"[\s_-]*\d+$", "", seat) or seat
