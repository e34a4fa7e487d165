"""How much of others' experience a node takes, which of its own it shares, and which groups it draws: pure functions.

I + J is constant in the paper (8 groups a round). J = 4 did best there: with more, curves swing, "learn and forget" (figure 1 of
arXiv:2509.08721), for which it gives two reasons: bad foreign answers drag good nodes down, and many who draw with few who
contribute make the pool worse. `Useful` answers the second, `Falling` the first.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np

from coterie.config.swarm import (
    ExternalConfig,
    FallingExternalConfig,
    FixedExternalConfig,
    LinearExternalConfig,
    UsefulExternalConfig,
)

MEMORY = 256
"""Rounds of the past that a node keeps for these policies; the longest window needs 200."""


@dataclass(frozen=True, slots=True)
class Past:
    """What a policy may know of a round that is over."""

    external: int
    """J as it was asked for; fewer may have been there."""
    reward: float | None
    """The mean reward of the node's own answers to fresh questions, before it learned from them."""
    admitted: int
    """Foreign groups that the gate let in during the round."""
    useful: int
    """Of them, those whose rewards are not all equal."""


class Policy(Interface):
    @property
    def most(self) -> int:
        """The largest J that it can ask for."""
        ...

    def external(self, round: int, past: Sequence[Past]) -> int:
        """J of round `round` (from 0), given the rounds before it, the oldest first; the oldest may be missing."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    groups: int

    @property
    def most(self) -> int:
        return self.groups

    def external(self, round: int, past: Sequence[Past]) -> int:
        return self.groups


@dataclass(frozen=True, slots=True)
class Linear:
    """`first` in round 0, `last` from round `rounds` on, halves rounded up."""

    first: int
    last: int
    rounds: int

    @property
    def most(self) -> int:
        return max(self.first, self.last)

    def external(self, round: int, past: Sequence[Past]) -> int:
        return _nearest(self.first + (self.last - self.first) * min(1.0, round / self.rounds))


@dataclass(frozen=True, slots=True)
class Useful:
    """J grows with the share of useful groups among those admitted in the last `window` rounds; `least` while there were none.

    Known failure: a share of useful groups says that they can teach, not that they teach this node; easy tasks that others half
    know look useful for ever.
    """

    least: int
    most: int
    window: int

    def external(self, round: int, past: Sequence[Past]) -> int:
        seen = past[-self.window :]
        admitted = sum(one.admitted for one in seen)
        share = sum(one.useful for one in seen) / admitted if admitted else 0.0
        return _nearest(self.least + (self.most - self.least) * share)


@dataclass(frozen=True, slots=True)
class Falling:
    """One group fewer when the mean own reward of the last `window` rounds is below that of the window before by more than
    `tolerance`, one more when it is above by more. J stands for a whole window before it changes again, so that a change is judged
    by what came after it. `most` in the beginning.

    Known failure: with few own questions a window's mean is noisy, and J then wanders; `tolerance` should be about twice its
    standard error. A reward can also fall because questions got harder.
    """

    least: int
    most: int
    window: int
    tolerance: float

    def external(self, round: int, past: Sequence[Past]) -> int:
        if not past:
            return self.most
        now = past[-1].external
        recent, before = past[-self.window :], past[-2 * self.window : -self.window]
        if len(before) < self.window or any(one.external != now for one in recent):
            return now
        change = _mean(recent) - _mean(before)
        if math.isnan(change) or abs(change) <= self.tolerance:
            return now
        return max(self.least, now - 1) if change < 0 else min(self.most, now + 1)


def policy_of(config: ExternalConfig) -> Policy:
    match config:
        case FixedExternalConfig():
            return Fixed(config.groups)
        case LinearExternalConfig():
            return Linear(config.first, config.last, config.rounds)
        case UsefulExternalConfig():
            return Useful(config.least, config.most, config.window)
        case FallingExternalConfig():
            return Falling(config.least, config.most, config.window, config.tolerance)


def is_useful(rewards: Sequence[float | None]) -> bool:
    """Whether a group has something to teach: two different rewards, compared exactly."""
    return len({reward for reward in rewards if reward is not None}) > 1


def choose(rewards: Sequence[Sequence[float | None]], share: str, at_most: int | None, rng: np.random.Generator) -> list[int]:
    """Which own groups are published, given the rewards of each, in their order. Groups of one are not: they have no baseline."""
    wanted = [i for i, group in enumerate(rewards) if share != "none" and len(group) > 1 and (share == "all" or is_useful(group))]
    if at_most is None or len(wanted) <= at_most:
        return wanted
    return sorted(rng.choice(wanted, size=at_most, replace=False).tolist())


def draw(count: int, size: int, shares: Sequence[float] | None, rng: np.random.Generator) -> list[int]:
    """`count` of `size` groups, or all when there are fewer, without replacement; `shares` are probabilities, None for equal ones.
    Groups with a share of 0 are never drawn."""
    able = range(size) if shares is None else [i for i in range(size) if shares[i] > 0]
    count = min(count, len(able))
    if count <= 0:
        return []
    weights = None
    if shares is not None:
        total = math.fsum(shares[i] for i in able)
        weights = [shares[i] / total for i in able]
    return rng.choice(np.asarray(able), size=count, replace=False, p=weights).tolist()


def _mean(rounds: Sequence[Past]) -> float:
    rewards = [one.reward for one in rounds if one.reward is not None]
    return math.fsum(rewards) / len(rewards) if rewards else math.nan


def _nearest(value: float) -> int:
    return math.floor(value + 0.5)
