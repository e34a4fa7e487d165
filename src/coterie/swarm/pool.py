"""What a node has received and may learn from: a journal of harvests, one line a round.

The gate lets each envelope in once, and remembers that at once; a checkpoint comes every so many rounds. So what was let in is
written down when it comes, and rounds that are played again after a kill find what they found the first time: they draw the same
groups and end with the same weights. Age is counted in the node's own rounds, not in seconds, for the same reason.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from coterie.records import append_lines, read_lines, write_text
from coterie.swarm.foreign import Foreign


@dataclass(frozen=True, slots=True)
class Harvest:
    """What one round found in the exchange."""

    round: int
    cursor: int | None = None
    """The last number that was read of the exchange; None before it has answered."""
    received: int = 0
    """Envelopes of others."""
    admitted: int = 0
    useful: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Counts by the gate's reason; own envelopes, which exchanges hand back, left out."""
    groups: tuple[Foreign, ...] = ()
    """Those admitted that may be drawn."""

    def record(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def of_record(record: Mapping[str, Any]) -> "Harvest":
        return Harvest(**{**record, "groups": tuple(Foreign.of_record(group) for group in record["groups"])})


class Pool:
    """The harvests of the last `max_age` rounds. A group's key is its round and its place in it."""

    def __init__(self, path: Path, max_age: int, size: int, uses: int):
        self._path, self._max_age, self._size, self._uses = path, max_age, size, uses
        self._harvests = {harvest.round: harvest for harvest in map(Harvest.of_record, read_lines(path))}
        self._write()  # without a last line that was torn by a kill, to which the next one would be glued

    @property
    def cursor(self) -> int | None:
        """Up to which number the exchange was read; None before the first harvest."""
        return self._harvests[max(self._harvests)].cursor if self._harvests else None

    def harvest(self, round: int) -> Harvest | None:
        return self._harvests.get(round)

    def add(self, harvest: Harvest) -> None:
        append_lines(self._path, [harvest.record()])
        self._harvests[harvest.round] = harvest

    def open(self, round: int, drawn: Mapping[str, int]) -> list[tuple[str, Foreign]]:
        """The groups that may be drawn in a round, the oldest first, given how often each was drawn before."""
        young = range(max(0, round - self._max_age + 1), round + 1)
        found = [
            (key, group)
            for harvest in (self._harvests[r] for r in young if r in self._harvests)
            for place, group in enumerate(harvest.groups)
            if drawn.get(key := f"{harvest.round}.{place}", 0) < self._uses
        ]
        return found[-self._size :]

    def recent(self, round: int, drawn: Mapping[str, int]) -> dict[str, int]:
        """Of the counts in `drawn`, those of groups that are not yet too old."""
        return {key: count for key, count in drawn.items() if int(key.partition(".")[0]) > round - self._max_age}

    def forget(self, round: int) -> None:
        """Drop what is too old for this round and all later ones: when no earlier one can be played again."""
        last = max(self._harvests, default=0)  # it knows the cursor
        kept = {r: harvest for r, harvest in self._harvests.items() if r > round - self._max_age or r == last}
        if len(kept) < len(self._harvests):
            self._harvests = kept
            self._write()

    def _write(self) -> None:
        lines = (json.dumps(harvest.record(), ensure_ascii=False) + "\n" for harvest in self._harvests.values())
        write_text(self._path, "".join(lines))
