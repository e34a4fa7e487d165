"""What a node sends: its own groups, signed, each number once.

A receiver takes a (node, seq) once, and texts once: what is sent again under an old number is dropped as a replay, and under a new
one it counts against the sender's reputation. So before anything of a round is sent, its numbers are written down, and afterwards
what came of it. A node that is killed in between publishes the round again under the same numbers; exchanges keep the first ones.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

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
        about = read_json(path) if path.is_file() else {}
        self._seq, self._round = about.get("seq", 0), about.get("round", -1)
        self._rounds: dict[int, dict[str, Any]] = {int(round): of for round, of in about.get("rounds", {}).items()}
        """Of rounds that may be played again: their first number, how many, and what came of it once all were published."""

    def send(self, round: int, groups: Sequence[Rollouts]) -> Sent:
        """Publish the groups of a round, under the numbers of its first time, unless all of them were in an earlier life. Never
        raises for what the exchange does."""
        of = self._rounds.get(round)
        if of is None:
            if round <= self._round or not groups:
                return Sent()
            of = self._rounds[round] = {"first": self._first(), "count": len(groups), "sent": None}
            self._seq, self._round = of["first"] + len(groups), round
            self._write()
        if of["sent"] is None:
            of["sent"] = asdict(self._publish(of["first"], groups[: of["count"]]))
            self._write()
        return Sent(**of["sent"])

    def forget(self, round: int) -> None:
        """Of rounds before this one, which are not played again."""
        self._rounds = {r: of for r, of in self._rounds.items() if r >= round}

    def _write(self) -> None:
        write_json(self._path, {"seq": self._seq, "round": self._round, "rounds": self._rounds})

    def _publish(self, first: int, groups: Sequence[Rollouts]) -> Sent:
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
