"""The tables of a report: plain rows of text from the summary, one function a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.report.results import Results, arm_mean, arm_names, number, runs
from coterie.report.terminal import SWARM

DASH = "–"
COUNTED = {"foreign_groups": 0, "bytes_sent": 0}
"""Decimals of the measures of a swarm that are counts."""


@dataclass(frozen=True, slots=True)
class Table:
    """`head` names the columns; the first cell of a row is its name."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


def shown(value: float | None, decimals: int = 3, sign: bool = False) -> str:
    if value is None:
        return DASH
    return f"{value:+,.{decimals}f}" if sign else f"{value:,.{decimals}f}"


def p_value(value: Any) -> str:
    p = number(value)
    return DASH if p is None else f"{p:.2g}"


def named(results: Results, arm: str) -> str:
    return f"{arm} (baseline)" if arm == results.get("baseline") else arm


def comparisons(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One row a comparison; the p values that a record does not have are dashes."""
    head = [
        "comparison",
        "by",
        "change",
        "interval",
        "verdict",
        "seeds",
        "p (t test)",
        "p (Holm)",
        "p (other)*",
        "could see",
        "no worse",
    ]
    body = []
    for row in rows:
        ends = [number(end) for end in row.get("interval") or ()]
        same = row.get("equivalence") or {}
        worse = DASH if not same else "shown" if same.get("no_worse") else "not shown"
        body.append(
            [
                f"{row.get('arm')} − {row.get('baseline')}",
                str(row.get("metric", "score")),
                shown(number(row.get("delta")), sign=True),
                f"{ends[0]:+.3f} to {ends[1]:+.3f}" if len(ends) == 2 and None not in ends else DASH,
                str(row.get("verdict", DASH)),
                f"{row.get('n', DASH)}{'' if row.get('paired', True) else ' unpaired'}",
                p_value(row.get("p_t")),
                p_value(row.get("p_holm")),
                p_value(row.get("p")),
                shown(number(row.get("smallest_effect"))),
                worse,
            ]
        )
    methods = dict.fromkeys(str(row["p_method"]) for row in rows if row.get("p_method") and row.get("p") is not None)
    return Table(head, body, f"* {'; '.join(methods)}" if methods else "")


def by_seed(name: str, rows: Sequence[tuple[str, Mapping[int, float], float | None]], more: str = "", sign: bool = False) -> Table:
    """`rows`: a name, the value of each seed, and a value for the last column, headed `more`; with the mean of the seeds."""
    seeds = sorted({seed for _, values, _ in rows for seed in values})
    body = []
    for row, values, last in rows:
        mean = sum(values.values()) / len(values) if values else None
        cells = [row, shown(mean, sign=sign), *(shown(values.get(seed), sign=sign) for seed in seeds)]
        body.append([*cells, shown(last, sign=sign)] if more else cells)
    return Table([name, "mean", *(f"seed {seed}" for seed in seeds), *([more] if more else [])], body)


def cost(results: Results) -> Table:
    """What training took, in the mean over an arm's seeds."""
    columns = [
        ("training, min", ("minutes", "train"), 1),
        ("evaluation, min", ("minutes", "evaluate"), 1),
        ("tokens sampled", ("cost", "sampled_tokens"), 0),
        ("tasks drawn", ("cost", "tasks"), 0),
        ("episodes", ("cost", "episodes"), 0),
        ("episodes kept", ("cost", "kept_episodes"), 0),
        ("rounds", ("cost", "rounds"), 0),
        ("replays", ("cost", "replays"), 0),
        ("held-out episodes", ("episodes",), 0),
    ]
    arms = arm_names(results)
    cells = [(head, [shown(arm_mean(results, arm, *path), decimals) for arm in arms]) for head, path, decimals in columns]
    there = [(head, of) for head, of in cells if any(cell != DASH for cell in of)]
    return Table(
        ["arm", *(head for head, _ in there)], [[named(results, arm), *(of[i] for _, of in there)] for i, arm in enumerate(arms)]
    )


def swarm(results: Results) -> list[Table]:
    """Of runs that are swarms: what sharing did, and held-out scores by specialty and by model; none for other runs."""
    arms = arm_names(results)
    every = [run for arm in arms for run in runs(results, arm).values()]
    if not any(run.get("swarm") for run in every):
        return []
    columns = [("nodes", ("nodes",), 0), *((head, (key,), COUNTED.get(key, 3)) for key, head in SWARM.items())]
    columns.append(("errors", ("errors",), 0))
    body = []
    for arm in arms:
        cells = [shown(arm_mean(results, arm, "swarm", *path), decimals) for _, path, decimals in columns]
        body.append([named(results, arm), *cells])
    heads = {"sent": "sent, bytes", "foreign": "foreign groups", "useful": "useful share"}
    tables = [Table(["arm", *(heads.get(head, head) for head, _, _ in columns)], body, "What sharing did (means over seeds)")]
    names = list(dict.fromkeys(name for run in every for name in run.get("specialties") or {}))
    models = list(dict.fromkeys(model for run in every for model in (run.get("swarm") or {}).get("by_model") or {}))
    for said, paths in (
        ("specialty", {name: ("specialties", name) for name in names}),
        ("model", {model: ("swarm", "by_model", model, "score") for model in models} if len(models) > 1 else {}),
    ):
        if paths:
            rows = [[named(results, arm), *(shown(arm_mean(results, arm, *path)) for path in paths.values())] for arm in arms]
            tables.append(Table(["arm", *paths], rows, f"Held-out score by {said} (means over seeds)"))
    return tables
