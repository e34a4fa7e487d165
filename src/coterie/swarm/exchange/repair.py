"""Who lacks what, and who can give it: the pure part of the replicator, without a network.

Nodes tell each other which (node, seq) they hold and ask for the difference: anti-entropy (Demers et al., "Epidemic algorithms for
replicated database maintenance", PODC 1987). Pushing alone loses what was sent while a link was down, and the last message of all
leaves no gap to see; with this, whatever one reachable archive holds reaches everybody in the end.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Set
from threading import Condition

from coterie.swarm.exchange.base import problem
from coterie.swarm.words import NodeId

Range = tuple[int, int]
"""First and last seq, both included."""
Wanted = tuple[NodeId, int]
Held = Mapping[NodeId, tuple[int, Set[int]]]
"""Of each node: the highest seq that was pruned (-1: none), and the seqs that are here."""
Arrival = tuple[NodeId, int, float, bytes]
"""node, seq, born (unix seconds), body."""


def to_ranges(seqs: Iterable[int]) -> list[Range]:
    ranges: list[Range] = []
    for seq in sorted(set(seqs)):
        if ranges and seq == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], seq)
        else:
            ranges.append((seq, seq))
    return ranges


def encode(recent: Mapping[NodeId, Iterable[int]], own: Mapping[NodeId, Iterable[int]]) -> bytes:
    """What is young enough to offer, and all that was published here, as JSON: seqs without holes cost 20 bytes, however many."""
    both = [{node: to_ranges(seqs) for node, seqs in part.items()} for part in (recent, own)]
    return json.dumps(both, separators=(",", ":")).encode()


def decode(data: bytes, held: Held) -> dict[NodeId, list[Range]]:
    """What of a stranger's offer is for us. Raises ValueError for anything that `encode` would not write.

    What is recent is for everybody. What is older, and its publisher's own, is for those who knew that node before: it was cut off
    and has come back. Who is new here takes the recent part only, else joining would mean fetching everything that is kept.
    """
    match json.loads(data):
        case [dict(recent), dict(own)]:
            offer = {node: [_range(node, pair) for pair in _list(pairs)] for node, pairs in recent.items()}
            for node, pairs in own.items():
                known = _known_from(*held.get(node, (-1, frozenset())))
                ranges = [_range(node, pair) for pair in _list(pairs)]
                offer.setdefault(node, []).extend((max(first, known), last) for first, last in ranges if last >= known)
            return offer
    raise ValueError("not two objects")


def _known_from(pruned: int, here: Set[int]) -> int:
    return pruned + 1 if pruned >= 0 else min(here, default=2**63)


def _list(value: object) -> list:
    if not isinstance(value, list):
        raise ValueError("not a list")
    return value


def _range(node: str, pair: object) -> Range:
    match pair:
        case [int(first), int(last)] if first <= last and not any(problem(node, seq, 1, 1) for seq in (first, last)):
            return first, last
    raise ValueError(f"{pair!r} is not a range of seqs")


def decode_wanted(data: bytes, limit: int) -> list[Wanted]:
    """The (node, seq) that a stranger asks for, the first `limit` of them. Raises ValueError."""
    pairs = []
    for pair in _list(json.loads(data))[:limit]:
        match pair:
            case [str(node), int(seq)] if not problem(node, seq, 1, 1):
                pairs.append((node, seq))
            case _:
                raise ValueError(f"{pair!r} is not a node and a seq")
    return pairs


def plan(offers: Mapping[NodeId, Mapping[NodeId, list[Range]]], held: Held, budget: int, turn: int) -> dict[NodeId, list[Wanted]]:
    """Whom to ask for which (node, seq): newest first, holders and nodes by turns, `budget` in all.

    A node is asked for its own where it offers them. The budget is shared by those who offer, and who comes first changes from call
    to call: one who offers what it does not have, of others too, wastes its own share and delays the rest, and stops nobody. Ranges
    are walked, never expanded: a stranger's may be of any length.
    """
    holders = sorted(offers)
    start = turn % len(holders) if holders else 0
    lists = deque((holder, _by_turns(offers[holder], held)) for holder in holders[start:] + holders[:start])
    asked, taken = dict[NodeId, list[Wanted]](), set[Wanted]()
    while lists and len(taken) < budget:
        holder, wanted = lists.popleft()
        one = next((one for one in wanted if one not in taken), None)
        if one is None:
            continue
        lists.append((holder, wanted))
        taken.add(one)
        node, seq = one
        itself = any(first <= seq <= last for first, last in offers.get(node, {}).get(node, ()))
        asked.setdefault(node if itself else holder, []).append(one)
    return asked


def _by_turns(offer: Mapping[NodeId, list[Range]], held: Held) -> Iterator[Wanted]:
    lacking = deque((node, _newest_lacking(ranges, *held.get(node, (-1, frozenset())))) for node, ranges in offer.items())
    while lacking:
        node, seqs = lacking.popleft()
        if (seq := next(seqs, None)) is not None:
            yield node, seq
            lacking.append((node, seqs))


def _newest_lacking(ranges: list[Range], pruned: int, here: Set[int]) -> Iterator[int]:
    """Seqs in `ranges`, above what was pruned and not here, from the highest down, each once."""
    below = 2**63
    for first, last in sorted(ranges, key=lambda pair: pair[1], reverse=True):
        for seq in range(min(last, below - 1), max(first, pruned + 1) - 1, -1):
            if seq not in here:
                yield seq
        below = min(below, first)


class Inbox:
    """What came in and is not written yet, by bytes: when full, the oldest goes and is counted. Repair finds it again."""

    def __init__(self, limit: int) -> None:
        self.limit, self.dropped, self._bytes = limit, 0, 0
        self._waiting: deque[Arrival] = deque()
        self._changed, self._closed = Condition(), False

    def put(self, arrival: Arrival) -> None:
        with self._changed:
            self._waiting.append(arrival)
            self._bytes += len(arrival[3])
            while self._bytes > self.limit:
                self._bytes -= len(self._waiting.popleft()[3])
                self.dropped += 1
            self._changed.notify()

    def take(self, most: int) -> list[Arrival]:
        """Waits for something; [] once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            taken = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
            self._bytes -= sum(len(body) for *_, body in taken)
            return taken

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
