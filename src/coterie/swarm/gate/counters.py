"""What was admitted and dropped, by node and reason, in bounded memory."""

from collections import Counter, OrderedDict
from collections.abc import Iterable

from coterie.swarm.gate.words import Row
from coterie.swarm.words import NodeId

OTHERS = "others"
ADMITTED, USEFUL = "admitted", "useful"


class Counters:
    """At most `nodes` proven nodes and as many that are only claimed; of each kind the least recently seen go into "others".

    The two kinds do not push each other out: names cost nothing, and a flood of invented ones would otherwise make one forget the
    counts of those that are real.
    """

    def __init__(self, nodes: int, rows: Iterable[Row] = ()):
        self._nodes = nodes
        self._counts: dict[bool, OrderedDict[NodeId, tuple[float, Counter[str]]]] = {True: OrderedDict(), False: OrderedDict()}
        self._others: tuple[float, Counter[str]] = (0.0, Counter())
        for row in sorted(rows, key=lambda row: row.last_seen):
            counts = Counter({ADMITTED: row.admitted, USEFUL: row.useful, **row.dropped})
            if row.node == OTHERS:
                self._merge(row.last_seen, counts)
            else:
                self._add(row.node, row.proven, row.last_seen, counts)

    def add(self, node: NodeId, proven: bool, now: float, *what: str) -> None:
        self._add(node, proven, now, Counter(what))

    def rows(self) -> list[Row]:
        """Proven nodes first, the last seen first; "others" at the end when it holds anything."""
        found = [
            _row(node, proven, seen, counts)
            for proven, group in self._counts.items()
            for node, (seen, counts) in reversed(group.items())
        ]
        return found + ([_row(OTHERS, False, *self._others)] if self._others[1] else [])

    def _add(self, node: NodeId, proven: bool, now: float, counts: Counter[str]) -> None:
        here, claimed = self._counts[proven], self._counts[False]
        if not proven and node in self._counts[True]:  # under its name, but perhaps not from it: it was not seen
            seen, old = self._counts[True][node]
            self._counts[True][node] = (seen, old + counts)
            return
        if proven and node in claimed:
            counts = counts + claimed.pop(node)[1]
        old = here.pop(node, (0.0, Counter()))[1]
        here[node] = (now, old + counts)
        if len(here) > self._nodes:
            self._merge(*here.popitem(last=False)[1])

    def _merge(self, seen: float, counts: Counter[str]) -> None:
        self._others = (max(seen, self._others[0]), self._others[1] + counts)


def _row(node: NodeId, proven: bool, seen: float, counts: Counter[str]) -> Row:
    dropped = {str(reason): count for reason, count in counts.items() if reason not in (ADMITTED, USEFUL)}
    return Row(node, proven, seen, counts[ADMITTED], counts[USEFUL], dropped)
