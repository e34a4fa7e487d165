"""How much a node's groups are worth drawing, from what it sent before.

SAPO draws external groups uniformly, and its authors name the danger: good nodes dragged down by bad answers of others. Keys are
free, so a new one must never be worth more than one that has shown itself.

A weight is a mean over what the node did, each act decayed by age, with `PRIOR` acts of worth `NEW` put in: 1 for an admitted
group that teaches (rewards not all equal), `DULL` for one that does not, 0 for a fault. All worths of a faultless node are above
`NEW`, so its weight is above an unknown key's whatever else it did, and falls back to it, never below, as its acts are forgotten.

Faults are only what the node's own signature proves: a question that is not the task's, a wrong number of completions, the same
text twice. What others can cause (replays, old envelopes, copies, rubbish under its name) and what may be this node's own lack
(an unknown source, a grader that fails) is counted and held against nobody.

A lead must not lock in: in simulation (docs/swarm-scale.md) the first two or three nodes to become known took nearly all draws for
good. So no node is more than `MOST` of a draw, and what newcomers share is larger while few are known. See `shares`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum

from coterie.swarm.gate.words import Reason
from coterie.swarm.words import NodeId

NEW, DULL, PRIOR = 0.1, 0.25, 10.0
FAULTS = frozenset({Reason.COMPLETIONS, Reason.QUESTION, Reason.DUPLICATE})
KNOWN = 8.0
"""Admitted groups, decayed, from which on a node is no newcomer."""
NEWCOMERS = 0.1
"""The most that all newcomers together may be of a draw in which there are enough known nodes to fill the rest."""
NEWCOMERS_AT_FIRST = 0.5
"""The same while fewer are known."""
MOST = 1 / 8
"""The most that one known node may be of a draw among as many as that allows (eight) or more."""


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


def shares(
    nodes: Sequence[NodeId], weight: Callable[[NodeId], float], known: Callable[[NodeId], bool], most: float = MOST
) -> list[float]:
    """The probability with which to draw each of some groups, given the node of each; they sum to 1.

    A node has its weight however many groups it has, so sending more does not help it. Two bounds, for k known nodes:

    - Newcomers share what k nodes leave at `most` each, but `NEWCOMERS` at least and `NEWCOMERS_AT_FIRST` at most: the many are
      heard while few are known, and a thousand fresh keys are never more than half, nor, from eight known nodes on, a tenth.
    - A known node has at most `most`, or 2/k - `most` where k nodes cannot fill the draw: twice an equal part, less as k grows,
      so that a good name still counts among few. What is cut off goes to the other known ones in proportion.

    Limits: among exactly 1/`most` known nodes all are alike; and one to three known nodes among newcomers keep half of the draws
    between them, more than `most` each, since otherwise fresh keys would have the rest.
    """
    groups = Counter(nodes)
    mass = {node: weight(node) for node in groups}
    old = [node for node in groups if known(node)]
    new = [node for node in groups if not known(node)]
    total, newcomers = fsum(mass.values()), fsum(mass[node] for node in new)
    part = newcomers / total if total > 0 else len(new) / len(groups) if groups else 0.0
    if old:
        part = min(part, max(NEWCOMERS, min(NEWCOMERS_AT_FIRST, 1 - len(old) * most)))
    found = dict(zip(old, _capped_part(1 - part, [mass[node] for node in old], most), strict=True))
    found |= dict(zip(new, _capped_part(part, [mass[node] for node in new], 1.0 if old else most), strict=True))
    return [found[node] / groups[node] for node in nodes]


def capped(parts: Sequence[float], most: float) -> list[float]:
    """Shares of which none is above `most`, what is cut off spread over the others in proportion; all equal if that cannot be."""
    if most * len(parts) <= 1:
        return [1 / len(parts)] * len(parts)
    made, full = list(parts), [False] * len(parts)
    while any(part > most * (1 + 1e-9) for part in made):
        full = [was or part >= most for was, part in zip(full, made, strict=True)]
        rest, free = 1 - most * sum(full), fsum(part for part, at in zip(made, full, strict=True) if not at)
        even = rest / (len(made) - sum(full))
        made = [most if at else rest * part / free if free > 0 else even for part, at in zip(made, full, strict=True)]
    return made


def _capped_part(total: float, masses: Sequence[float], most: float) -> list[float]:
    """`total` of a draw, shared by these in proportion to their masses, none above the bound for as many nodes."""
    if not masses or total <= 0:
        return [0.0] * len(masses)
    whole = fsum(masses)
    parts = [mass / whole if whole > 0 else 1 / len(masses) for mass in masses]
    bound = max(most, 2 / len(masses) - most) / total
    return [total * part for part in capped(parts, min(1.0, bound))]
