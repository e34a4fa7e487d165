"""How much a node's groups are worth drawing, from what it sent before.

SAPO draws external groups uniformly, and its authors name the danger: good nodes dragged down by bad answers of others. Keys are
free, so a new one must never be worth more than one that has shown itself.

A weight is a mean over what the node did, each act decayed by age, with `PRIOR` acts of worth `NEW` put in: 1 for an admitted
group that teaches (rewards not all equal), `DULL` for one that does not, 0 for a fault. All worths of a faultless node are above
`NEW`, so its weight is above an unknown key's whatever else it did, and falls back to it, never below, as its acts are forgotten.

Faults are only what the node's own signature proves: a question that is not the task's, a wrong number of completions, the same
text twice. What others can cause (replays, old envelopes, copies, rubbish under its name) and what may be this node's own lack
(an unknown source, a grader that fails) is counted and held against nobody.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.swarm.gate.words import Reason
from coterie.swarm.words import NodeId

NEW, DULL, PRIOR = 0.1, 0.25, 10.0
FAULTS = frozenset({Reason.COMPLETIONS, Reason.QUESTION, Reason.DUPLICATE})
KNOWN = 8.0
"""Admitted groups, decayed, from which on a node is no newcomer."""
NEWCOMERS = 0.1
"""The most that all newcomers together may be of a draw in which there is a known node."""


@dataclass(frozen=True, slots=True)
class Reputation:
    useful: float = 0.0
    dull: float = 0.0
    faults: float = 0.0
    at: float = 0.0
    """Up to when the three are decayed, unix seconds."""

    def decayed(self, now: float, half_life: float) -> "Reputation":
        left = 0.5 ** (max(0.0, now - self.at) / half_life)
        return Reputation(self.useful * left, self.dull * left, self.faults * left, max(now, self.at))

    def after(self, now: float, half_life: float, useful: int = 0, dull: int = 0, faults: int = 0) -> "Reputation":
        old = self.decayed(now, half_life)
        return Reputation(old.useful + useful, old.dull + dull, old.faults + faults, old.at)

    def weight(self, now: float, half_life: float) -> float:
        """Between 0 and 1; `NEW` for a node of which nothing is known."""
        one = self.decayed(now, half_life)
        acts = PRIOR + one.useful + one.dull + one.faults
        return (PRIOR * NEW + one.useful + DULL * one.dull) / acts

    def known(self, now: float, half_life: float) -> bool:
        one = self.decayed(now, half_life)
        return one.useful + one.dull >= KNOWN


def shares(nodes: Sequence[NodeId], weight: Callable[[NodeId], float], known: Callable[[NodeId], bool]) -> list[float]:
    """The probability with which to draw each of some groups, given the node of each; they sum to 1.

    A node has its weight however many groups it has, so sending more does not help it; and newcomers share at most `NEWCOMERS`
    among themselves once there is a known node, so a thousand fresh keys do not either.
    """
    groups = Counter(nodes)
    mass = {node: weight(node) for node in groups}
    old = sum(value for node, value in mass.items() if known(node))
    new = sum(value for node, value in mass.items() if not known(node))
    scale = min(1.0, NEWCOMERS / (1 - NEWCOMERS) * old / new) if old > 0 and new > 0 else 1.0
    scaled = {node: value if known(node) else value * scale for node, value in mass.items()}
    total = sum(scaled.values())
    return [scaled[node] / groups[node] / total if total > 0 else 1 / len(nodes) for node in nodes]
