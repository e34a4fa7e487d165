"""What bad nodes do to the draws of an honest one, with and without the gate's quota and reputation.

One honest node is followed. Others' groups do not depend on what it draws, so one is enough for a swarm of any size. Bad nodes
share `rate` times as many groups as honest ones, and announce all of them as worth pulling:

- `useless`: true groups of which no completion differs in reward;
- `false`: groups whose question is not the task's, which the gate proves and holds against the key;
- `fresh`: false ones, under a new key in every round.

Honest announcements are true, so when announcing only groups with a signal are drawn from honest nodes. When flooding there is no
announcement and the draw is from everything (from everything admitted, with the gate), as in SAPO's demonstration.

With the gate, the reputations and shares are those of `gate.reputation` itself. When flooding, it judges all that comes in; when
announcing, only what was pulled. The quota is assumed to hold for announcements as it does for envelopes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from coterie.seeding import stream
from coterie.swarm.gate.reputation import MOST, Reputation, shares
from coterie.swarm.gate.words import Limits
from coterie.swarm.simulate.sharing import Sharing

Kind = Literal["useless", "false", "fresh"]
Guard = Literal["nothing", "quota", "gate"]
"""`gate` is quota, reputation and the check of each group; with less, false groups are believed."""


@dataclass(frozen=True, slots=True)
class BadNodes:
    nodes: int
    share: float
    """Of the other nodes, how many are bad."""
    kind: Kind
    guard: Guard
    sharing: Sharing = field(default_factory=Sharing)
    by_group: bool = False
    """Shards hold groups of everybody, and not the same publishers each time."""
    rate: float = 4.0
    groups: int = 8
    useful: float = 0.5
    """The chance that an honest group has a signal."""
    draws: int = 4
    most: float = MOST
    """The most that one known node may be of a draw; 1 for no bound."""
    round: float = 300.0
    rounds: int = 96
    limits: Limits = field(default_factory=Limits)


Draws = list[tuple[int, bool]]
"""One round's: from which node, honest ones first, and whether the group was an honest one with a signal."""


def play(setting: BadNodes, seed: int) -> list[Draws]:
    """What the followed node draws, round by round; empty for a round in which there was nothing."""
    rng = stream(seed, "bad", setting.nodes, setting.kind)
    good, bad = _heard(setting, rng)
    node = _Node(setting, good, bad, rng)
    return [node.round(number * setting.round, number) for number in range(setting.rounds)]


def useful_share(rounds: Sequence[Draws]) -> float:
    """Of the groups drawn in these rounds, how many were worth it."""
    drawn = [useful for draws in rounds for _, useful in draws]
    return sum(drawn) / len(drawn) if drawn else 0.0


def effective_nodes(rounds: Sequence[Draws]) -> float:
    """From how many nodes the useful ones came: one over the chance that two of them are of one node, without replacement.

    The inverse of Simpson's (1949) unbiased index, so it does not grow with the number of rounds; `inf` where no two are of one.
    """
    counts = np.bincount([node for draws in rounds for node, useful in draws if useful], minlength=1)
    total, pairs = int(counts.sum()), int((counts * (counts - 1)).sum())
    return total * (total - 1) / pairs if pairs else float("inf")


def through(sent: int, seconds: float, tokens: float, rate: float, burst: float) -> tuple[int, float]:
    """How many of `sent` envelopes, evenly spaced over a time, pass a token bucket, and what is left in it."""
    passed = min(sent, int(tokens + rate * seconds))
    return passed, min(burst, tokens + rate * seconds - passed)


def _heard(setting: BadNodes, rng: np.random.Generator) -> tuple[int, int]:
    """How many honest and bad nodes the followed one hears of."""
    others = setting.nodes - 1
    bad = round(setting.share * others)
    if setting.by_group or setting.sharing.seen == 1:
        return others - bad, bad
    return int(rng.binomial(others - bad, setting.sharing.seen)), int(rng.binomial(bad, setting.sharing.seen))


class _Node:
    """The followed node. The nodes that it hears of are numbers: first the honest ones, then the bad ones."""

    def __init__(self, setting: BadNodes, good: int, bad: int, rng: np.random.Generator):
        self.setting, self.good, self.bad, self.rng = setting, good, bad, rng
        self.floods = setting.sharing.shards is None
        self.known: dict[str, Reputation] = {}
        self.tokens = setting.limits.envelopes_burst

    def round(self, now: float, number: int) -> Draws:
        setting = self.setting
        names = [f"good {i}" for i in range(self.good)]
        names += [f"bad {i}" if setting.kind != "fresh" else f"bad {i} of {number}" for i in range(self.bad)]
        useful, other = self._pool()
        gated = setting.guard == "gate"
        if gated and self.floods:
            # all was judged as it came in, and what is false is not there to be drawn
            for i, name in enumerate(names):
                if useful[i] + other[i]:
                    self._judge(name, i, int(useful[i]), int(other[i]), now)
            if setting.kind != "useless":
                other[self.good :] = 0
        count = useful + other
        there = np.flatnonzero(count)
        if not len(there):
            return []
        weight = np.ones(len(count))
        if gated:
            # one entry a node: `shares` gives a node its share however many groups it has
            weight[there] = np.array(self._shares([names[i] for i in there], now)) / count[there]
        drawn = self._draw(useful, count, weight)
        if gated and not self.floods:
            for i, one in drawn:
                self._judge(names[i], i, int(one), int(not one), now)
        if setting.kind == "fresh":
            self.known = {name: about for name, about in self.known.items() if name.startswith("good")}
        return drawn

    def _pool(self) -> tuple[np.ndarray, np.ndarray]:
        """Groups of this round with a signal and without, by node."""
        setting, rng = self.setting, self.rng
        sent = round(setting.groups * setting.rate)
        if setting.guard != "nothing":
            limits = setting.limits
            tokens = limits.envelopes_burst if setting.kind == "fresh" else self.tokens
            sent, self.tokens = through(sent, setting.round, tokens, limits.envelopes_per_second, limits.envelopes_burst)
        useful, other = np.zeros((2, self.good + self.bad), dtype=np.int64)
        useful[: self.good] = rng.binomial(setting.groups, setting.useful, self.good)
        if self.floods:
            other[: self.good] = setting.groups - useful[: self.good]
        other[self.good :] = sent
        if setting.by_group:
            useful, other = rng.binomial(useful, setting.sharing.seen), rng.binomial(other, setting.sharing.seen)
        return useful, other

    def _draw(self, useful: np.ndarray, count: np.ndarray, weight: np.ndarray) -> Draws:
        """J groups without replacement, each with its weight: which node's, and whether it has a signal."""
        useful, count = useful.copy(), count.copy()
        drawn: Draws = []
        for _ in range(min(self.setting.draws, int(count.sum()))):
            mass = np.cumsum(weight * count)
            i = int(np.searchsorted(mass, self.rng.random() * mass[-1], side="right"))
            one = bool(self.rng.random() * count[i] < useful[i])
            useful[i] -= one
            count[i] -= 1
            drawn.append((i, one))
        return drawn

    def _judge(self, name: str, i: int, useful: int, other: int, now: float) -> None:
        false = i >= self.good and self.setting.kind != "useless"
        self.known[name] = self.known.get(name, Reputation()).after(
            now, self.setting.limits.half_life, useful=useful, dull=0 if false else other, faults=other if false else 0
        )

    def _shares(self, names: Sequence[str], now: float) -> list[float]:
        half_life = self.setting.limits.half_life
        about = {name: self.known.get(name, Reputation()) for name in names}
        known = {name: one.known(now, half_life) for name, one in about.items()}
        return shares(names, lambda n: about[n].weight(now, half_life), known.__getitem__, self.setting.most)
