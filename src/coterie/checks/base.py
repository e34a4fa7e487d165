"""What a check is given, and what it says.

A check says "ok", "note" (something a reader should know), "fault" (the score does not mean what it seems to mean, until what the
sentence asks for is done) or "unknown" (what it needs is not in the record, and the sentence says what). None changes a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "note", "fault", "unknown"]
Record = Mapping[str, Any]
Finding = tuple[Status, str]
"""A status, and one sentence with the figures; for a fault it also says what to do."""


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    status: Status
    said: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one trained run left. Anything may be missing: an empty record is that of a run that has not finished."""

    record: Record = field(default_factory=dict)
    """`result.json`."""
    before: Record | None = None
    """The record of the arm's untrained model."""
    metrics: Sequence[Record] = ()
    """`metrics.jsonl`, one a step."""
    conversations: Sequence[Record] = ()
    """`evaluation.jsonl`: held-out conversations, as `scoring.score_run` gives them."""
    before_conversations: Sequence[Record] = ()
    """Those of the untrained model."""
    siblings: Sequence[Record] = ()
    """The records of the trained runs of its folder, its own among them."""

    def measure(self, name: str) -> float | None:
        return measure_of(self.record, name)

    def measure_before(self, name: str) -> float | None:
        return measure_of(self.before, name)


def measure_of(record: Record | None, name: str) -> float | None:
    """A held-out measure of a record; None where it has none."""
    return ((record or {}).get("measures") or {}).get(name)


def faults(checks: Mapping[str, Sequence[Mapping[str, str]]]) -> tuple[int, int]:
    """How many checks are faults, and in how many runs; of checks by run as `as_json` gives them."""
    counts = [sum(check["status"] == "fault" for check in of_run) for of_run in checks.values()]
    return sum(counts), sum(count > 0 for count in counts)


def as_json(checks: Mapping[str, Sequence[Check]]) -> dict[str, list[dict[str, str]]]:
    """Checks by run, ready for JSON."""
    return {run: [{"name": c.name, "status": c.status, "said": c.said} for c in of_run] for run, of_run in checks.items()}
