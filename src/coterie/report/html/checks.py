"""The checks of a report: what the runs' checks say together, and each of them by run."""

from collections.abc import Iterator, Mapping
from typing import Any

from coterie.report.html.tables import DASH, Table
from coterie.report.results import Results, arm_names, dig, grading_errors, runs

OUTCOMES = {"fault": "✗ fault", "note": "• note", "unknown": "? unknown", "ok": "✓ ok"}
"""In the order in which they matter."""

Check = tuple[str, str, str, str]
"""The run (empty for the whole), the check, its status and its sentence."""


def stated(results: Results) -> list[Check]:
    """The checks of the summary: by run as `checks.as_json` writes them, or a list for the whole."""
    return list(_stated(results.get("checks") or []))


def _stated(found: Any, run: str = "") -> Iterator[Check]:
    if isinstance(found, Mapping):
        for name, of_run in found.items():
            yield from _stated(of_run, str(name))
        return
    for one in found:
        status = one.get("status") or ("ok" if one.get("ok") else "fault")
        yield run, str(one.get("name", "")), str(status), str(one.get("said", ""))


def together(results: Results) -> Table:
    """One row for each check: the gravest outcome, how many runs have it, and what it says of the first of them; then what can be
    counted from the summary itself."""
    by_name: dict[str, list[Check]] = {}
    for one in stated(results):
        by_name.setdefault(one[1], []).append(one)
    order = list(OUTCOMES)
    rows = []
    for name, found in by_name.items():
        gravest = min((one[2] for one in found), key=lambda status: order.index(status) if status in order else 0)
        having = [one for one in found if one[2] == gravest]
        run, _, _, said = having[0]
        where = f"{run}: " if run else ""
        more = f" (and {len(having) - 1} further run{'s' * (len(having) != 2)})" if len(having) > 1 else ""
        rows.append((order.index(gravest) if gravest in order else 0, [name, _shown(gravest), f"{where}{said}{more}"]))
    rows += [(order.index(status), [name, _shown(status), said]) for name, status, said in _counted(results)]
    return Table(["check", "", "what was found"], [row for _, row in sorted(rows, key=lambda row: row[0])])


def each(results: Results) -> Table | None:
    """Every check of every run; None where the summary states none."""
    rows = [[run or "all", name, _shown(status), said] for run, name, status, said in stated(results)]
    return Table(["run", "check", "", "what was found"], rows) if rows else None


def _shown(status: str) -> str:
    return OUTCOMES.get(status, status)


def _counted(results: Results) -> Iterator[tuple[str, str, str]]:
    arms = arm_names(results)
    failed = {arm: count for arm in arms if (count := grading_errors(results, arm))}
    said = ", ".join(f"{arm} {count:,}" for arm, count in failed.items()) or "every held-out answer was graded"
    yield "grader", "fault" if failed else "ok", said
    seeds = {arm: tuple(runs(results, arm)) for arm in arms}
    if len(set(seeds.values())) <= 1:
        yield "seeds", "ok", f"every arm has seeds {', '.join(map(str, next(iter(seeds.values()), ()))) or DASH}"
    else:
        yield "seeds", "note", "; ".join(f"{arm} has {', '.join(map(str, of)) or 'none'}" for arm, of in seeds.items())
    without = [f"{arm} seed {seed}" for arm in arms for seed, run in runs(results, arm).items() if dig(run, "score") is None]
    yield "scores", "fault" if without else "ok", f"no score: {', '.join(without)}" if without else "every run has one"
