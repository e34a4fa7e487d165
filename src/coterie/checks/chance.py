"""Talk measures against the same chat with the channel off: what a seat writes by chance, or as a habit, is not talk.

The channel is off in an arm whose `protocol.deliver` is false. Arms are paired by training seed: same seed, same tasks, same noise.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.checks.base import Evidence, Finding, Record, measure_of
from coterie.config_errors import differences
from coterie.stats.intervals import t_interval

TALK = ("shared", "used", "unheard", "asked", "agree")
"""Measures that a cut channel has a chance level of."""

UNHEARD, UNHEARD_NOTE = 0.05, 0.02
"""By how much the share of messages with a number that the seat never had may lie above the level of chance. In eight pocket chats
(160 messages each, trained and not, channel on and off) that share was between 0 and 1.9 %."""

UNHEARD_ALONE = 0.10
"""The share itself, where there is no level of chance to take off: five times what was seen in those runs."""


def is_off(record: Record) -> bool:
    """Whether messages were not delivered."""
    return _protocol(record).get("deliver") is False


def off_arm(record: Record, others: Sequence[Record]) -> str | None:
    """The channel-off arm that belongs to a run: of its kind of protocol, and with the fewest other differences. None where there
    is none, or where it is one itself."""
    if is_off(record):
        return None
    kind = _protocol(record).get("kind")
    there = [other for other in others if is_off(other) and _protocol(other).get("kind") == kind]
    apart = {other["arm"]: len(differences(other["conditions"], record["conditions"])) for other in there}
    return min(apart, key=lambda arm: (apart[arm], arm), default=None)


def over_chance(records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """For each arm with a channel-off arm beside it: `off`, that arm's name, and for each talk measure that both have the
    differences arm − off `by_seed`, their `mean`, and its 95 % t interval (`low`, `high`; None with one seed)."""
    found: dict[str, dict[str, Any]] = {}
    for arm in dict.fromkeys(record["arm"] for record in records):
        of_arm = {record["seed"]: record for record in records if record["arm"] == arm}
        off = off_arm(next(iter(of_arm.values())), records)
        of_off = {record["seed"]: record for record in records if record["arm"] == off}
        measures = {name: row for name in TALK if (row := _row(of_arm, of_off, name))}
        if off is not None and measures:
            found[arm] = {"off": off, "measures": measures}
    return found


def invented_facts(evidence: Evidence) -> Finding:
    """Messages with a private number that their seat never had, above the level of chance: a leak in what seats are given, or tasks
    known by heart. Chance is the channel-off arm of the same seed, or else the untrained model."""
    share = evidence.measure("unheard")
    if share is None:
        return "unknown", "the record has no share of numbers that nobody told (unheard): no private facts, or an older version"
    control, level = _control(evidence)
    said = f"{share:.1%} of the messages hold a private number that their seat never had"
    if level is None:
        if share > UNHEARD_ALONE:
            return "fault", f"{said}, and there is no level of chance to take off; read the prompts for a leak, or add an off arm"
        return "ok", f"{said}; there is no level of chance to hold it against"
    said = f"{said}, {level:.1%} {control}"
    if share - level > UNHEARD:
        return "fault", f"{said}; read the prompts for a leak, and look whether tasks repeat in training"
    return ("note" if share - level > UNHEARD_NOTE else "ok"), said


def channel_off(evidence: Evidence) -> Finding:
    """Use of the talk, with chance use subtracted."""
    record = evidence.record
    if is_off(record):
        return "ok", "this is the arm with the channel off, the level of chance of the others"
    off = _off_record(evidence)
    if off is None:
        return "unknown", "no run of its seed has the channel off (protocol.deliver = false), so chance use cannot be taken off"
    pairs = {name: (evidence.measure(name), measure_of(off, name)) for name in TALK}
    gaps = {name: one - other for name, (one, other) in pairs.items() if one is not None and other is not None}
    if not gaps:
        return "unknown", f"this run and {off['arm']} share no talk measure"
    said = f"above arm {off['arm']} of seed {off['seed']}: " + ", ".join(f"{name} {gap:+.3f}" for name, gap in gaps.items())
    if gaps.get("used", 1.0) <= 0.0:
        return "note", f"{said}; private numbers are used no more than by chance, so a gain is not the talk's"
    return "ok", said


def _off_record(evidence: Evidence) -> Record | None:
    """The run with the channel off and the same seed."""
    if not evidence.record.get("conditions"):
        return None
    arm, seed = off_arm(evidence.record, evidence.siblings), evidence.record["seed"]
    return next((other for other in evidence.siblings if (other["arm"], other["seed"]) == (arm, seed)), None)


def _control(evidence: Evidence) -> tuple[str, float | None]:
    off = measure_of(_off_record(evidence), "unheard")
    if off is not None:
        return "with the channel off", off
    return "before training", evidence.measure_before("unheard")


def _row(of_arm: Mapping[int, Record], of_off: Mapping[int, Record], name: str) -> dict[str, Any] | None:
    pairs = {s: (measure_of(of_arm[s], name), measure_of(of_off[s], name)) for s in sorted(of_arm.keys() & of_off.keys())}
    by_seed = {str(seed): one - other for seed, (one, other) in pairs.items() if one is not None and other is not None}
    if not by_seed:
        return None
    low, high = t_interval([*by_seed.values()]) or (None, None)
    return {"by_seed": by_seed, "mean": statistics.fmean(by_seed.values()), "low": low, "high": high}


def _protocol(record: Record) -> Record:
    return (record.get("conditions") or {}).get("protocol") or {}
