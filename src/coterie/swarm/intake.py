"""From the exchange through the gate: what a round finds."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from coterie.swarm.exchange.base import Exchange
from coterie.swarm.foreign import Foreign
from coterie.swarm.gate import Admitted, Gate, Reason
from coterie.swarm.pool import Harvest
from coterie.swarm.sharing import is_useful
from coterie.swarm.trouble import Trouble

READ, AT_ONCE = 4096, 256
"""Most envelopes that one round takes from the exchange, so that a flood delays it by seconds, and how many at a time."""
FIRST = 512
"""How far back a newcomer reads."""


@dataclass(frozen=True, slots=True)
class Intake:
    """`remember` is applied to each group that is kept."""

    exchange: Exchange
    gate: Gate
    only_useful: bool
    keep_seconds: float
    clock: Callable[[], float]
    trouble: Trouble
    remember: Callable[[Foreign], Foreign]

    def harvest(self, round: int, cursor: int | None) -> Harvest:
        """Read what has arrived after number `cursor` (None: never read before) and let the gate judge it."""
        cursor = self._start(cursor)
        groups: list[Foreign] = []
        dropped: Counter[str] = Counter()
        read = 0
        while cursor is not None and read < READ:
            after = cursor
            batch = self.trouble.guard("reading the exchange", lambda after=after: self.exchange.draw(after, AT_ONCE)) or ()
            for envelope in batch:
                result = self.gate.admit(envelope)
                if isinstance(result, Admitted):
                    groups.append(Foreign(result.node, result.rollouts, result.rewards))
                else:
                    dropped[str(result.reason)] += 1
                cursor = envelope.number
            read += len(batch)
            if len(batch) < AT_ONCE:
                break
        dropped.pop(str(Reason.OWN), None)
        return as_harvest(round, cursor, groups, dropped, self.only_useful, self.remember)

    def _start(self, cursor: int | None) -> int | None:
        """Where to read on; None where the exchange does not answer.

        A newcomer begins with what is young enough for the gate. And where the exchange has begun anew (its file was moved away),
        its numbers have too: a node that waited for higher ones would be alone and not know it, as rl-swarm's nodes were after a
        jump of the round number.
        """
        newest = self.trouble.guard("asking the exchange for its newest", lambda: self.exchange.history(0.0, 1))
        if newest is None:
            return None if cursor is None else cursor
        last = newest[-1].number if newest else 0
        if cursor is not None:
            return cursor if cursor <= last else 0
        young = self.trouble.guard(
            "reading the exchange's history", lambda: self.exchange.history(self.clock() - self.keep_seconds, FIRST)
        )
        return None if young is None else young[0].number - 1 if young else last


def as_harvest(
    round: int,
    cursor: int | None,
    groups: list[Foreign],
    dropped: Counter[str],
    only_useful: bool,
    remember: Callable[[Foreign], Foreign],
) -> Harvest:
    useful = [group for group in groups if is_useful(group.rewards)]
    kept = tuple(remember(group) for group in (useful if only_useful else groups))
    return Harvest(round, cursor, len(groups) + dropped.total(), len(groups), len(useful), dict(dropped), kept)
