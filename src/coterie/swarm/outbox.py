"""What a node sends: its own groups, signed, each number once.

A receiver takes a (node, seq) once, and texts once: what is sent again under an old number is dropped as a replay, and under a new
one it counts against the sender's reputation. So before anything of a round is sent, the numbers and the round are written down. A
node that is killed then may lose what it was about to send; it never sends twice.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coterie.records import read_json, write_json
from coterie.swarm.envelope import Malformed, encode
from coterie.swarm.exchange.base import Exchange
from coterie.swarm.identity import Identity
from coterie.swarm.trouble import Trouble
from coterie.swarm.words import Envelope, Rollouts

_FAR = 2**52


@dataclass(frozen=True, slots=True)
class Sent:
    groups: int = 0
    bytes: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    """Groups that were not sent: "malformed" (as a rule too large) or "exchange"."""


class Outbox:
    """No error of the exchange is raised; `trouble` counts them."""

    def __init__(
        self, swarm: str, identity: Identity, exchange: Exchange, path: Path, clock: Callable[[], float], trouble: Trouble
    ):
        self._swarm, self._identity, self._exchange, self._path = swarm, identity, exchange, path
        self._clock, self._trouble = clock, trouble
        about = read_json(path) if path.is_file() else {"seq": 0, "round": -1}
        self._seq, self._round = about["seq"], about["round"]

    def send(self, round: int, groups: Sequence[Rollouts]) -> Sent:
        """Publish the groups of a round, unless they were in an earlier life. Never raises for what the exchange does."""
        if round <= self._round or not groups:
            return Sent()
        first = self._first()
        self._seq, self._round = first + len(groups), round
        write_json(self._path, {"seq": self._seq, "round": round})
        sent = size = 0
        failed: Counter[str] = Counter()
        for seq, rollouts in enumerate(groups, start=first):
            envelope = Envelope(self._swarm, self._identity.node, seq, self._clock(), rollouts)
            try:
                body = encode(envelope, self._identity)
            except Malformed as error:
                self._trouble.note(f"a group of task {rollouts.ref.source} {rollouts.ref.index} was not sent: {error.reason}")
                failed["malformed"] += 1
                continue
            try:
                self._exchange.publish(self._identity.node, seq, body)
            except Exception as error:  # a full disk, a broken link: the round goes on
                self._trouble.note(f"publishing: {error}")
                failed["exchange"] += 1
                continue
            sent, size = sent + 1, size + len(body)
        return Sent(sent, size, dict(failed))

    def _first(self) -> int:
        """The next number that is free: beyond those used, and beyond what was published through this exchange in this node's name,
        which is more than its own where its folder is an old copy. What the network brought in its name does not count, nor do
        numbers of which no end is in sight: somebody else wrote them, and this node would have none left.

        Known failure: where both the folder and the exchange's file are old copies, numbers are used again, and dropped as replays
        by those who heard the first ones."""
        known = self._trouble.guard("asking the exchange for the last number", lambda: self._exchange.last_seq(self._identity.node))
        return max(self._seq, known + 1) if known is not None and known < _FAR else self._seq
