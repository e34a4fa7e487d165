"""The figures of a report, from the summary of its records: what each one shows, in two widths, and the same numbers as a table."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coterie.report.html import tables
from coterie.report.html.curves import curves_figure, smoothed, window_of
from coterie.report.html.heat import heat_figure
from coterie.report.html.marks import Drawing
from coterie.report.html.plot import NARROW, Plot, in_rows, looks
from coterie.report.html.rows import Row
from coterie.report.html.source import GoingOn
from coterie.report.html.tables import Table, shown
from coterie.report.plots import mean_curve
from coterie.report.results import Results, arm_mean, arm_names, curves, dig, number, runs

MOST_STEPS = 20
"""Rows in the table of a learning curve."""


def differences(results: Results) -> list[Plot]:
    """A forest plot for each metric that arms are compared by."""
    colours, shapes = looks(results)
    by_metric: dict[str, list[Mapping[str, Any]]] = {}
    for row in results.get("comparisons") or []:
        by_metric.setdefault(str(row.get("metric", "score")), []).append(row)
    plots = []
    for metric, found in by_metric.items():
        rows = []
        for row in found:
            arm, baseline = str(row["arm"]), str(row["baseline"])
            ends = tuple(number(end) for end in row.get("interval") or ())
            interval = (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None
            delta, seeds = number(row.get("delta")), _numbers(row.get("per_seed") or {})
            said = f"{shown(delta, sign=True)} [{interval[0]:+.3f}, {interval[1]:+.3f}]" if interval else shown(delta, sign=True)
            facts = {"arm": arm, "against": baseline}
            note = f"{said} · {row.get('verdict', '')}"
            look = colours.get(arm, "base"), shapes.get(arm, "circle")
            rows.append(Row(f"{arm} − {baseline}", *look, seeds, delta, interval, note=note, facts=facts))
        band = number(found[0].get("min_effect"))
        alpha = number(found[0].get("alpha"))
        level = f"{100 * (1 - alpha):g} % interval" if alpha is not None else "interval"
        note = f"Small marks: one training seed each, with its number. Bar and line: their mean and its {level} over seeds."
        note += f" Shaded: differences smaller than {band:g}, the smallest of interest." if band else ""
        unit = f"difference in {name_of(metric, results)}"
        pairs = [
            (f"{row['arm']} − {row['baseline']}", _numbers(row.get("per_seed") or {}), number(row.get("smallest_effect")))
            for row in found
        ]
        table = tables.by_seed("difference", pairs, "could see", sign=True)
        plots.append(
            Plot(f"differences-{metric}", _difference_title(found, metric, results), note, in_rows(rows, unit, True, band), table)
        )
    return plots


def name_of(metric: str, results: Results) -> str:
    reward = str(results.get("metric", "score"))
    if metric == "cross_play":
        return f"{reward} with a stranger in the other seats"
    if metric.startswith("also."):
        return f"{reward} as {metric.removeprefix('also.')}"
    if metric.startswith("swarm."):
        return metric.removeprefix("swarm.").replace("_", " ") + " of the swarm"
    return reward


def _difference_title(found: Sequence[Mapping[str, Any]], metric: str, results: Results) -> str:
    name = name_of(metric, results)
    if len(found) > 1:
        verdicts = Counter(str(row.get("verdict", "no verdict")) for row in found)
        return f"Differences in {name}: {', '.join(f'{count} {verdict}' for verdict, count in verdicts.items())}"
    row, seeds = found[0], _numbers(found[0].get("per_seed") or {})
    delta = number(row.get("delta")) or 0.0
    way = "higher" if delta > 0 else "lower" if delta < 0 else "the same"
    count = (
        sum((value > 0) == (delta > 0) and value != 0 for value in seeds.values()) if delta else sum(v == 0 for v in seeds.values())
    )
    by = f"{way} by {abs(delta):.3f}" if delta else way
    return f"{row['arm']} against {row['baseline']}: {name} is {by}, {way} in {count} of {len(seeds)} seeds"


def scores(results: Results) -> list[Plot]:
    """Held-out scores: each seed, their mean, and the untrained model."""
    colours, shapes = looks(results)
    rows, table = [], []
    for arm in arm_names(results):
        seeds = {seed: score for seed, run in runs(results, arm).items() if (score := dig(run, "score")) is not None}
        if seeds:
            before = arm_mean(results, arm, "before", "score")
            middle = sum(seeds.values()) / len(seeds)
            note = f"mean {middle:.3f}" + (f" · untrained {before:.3f}" if before is not None else "")
            look = colours[arm], shapes[arm]
            rows.append(Row(tables.named(results, arm), *look, seeds, middle, None, before, note, facts={"arm": arm}))
            table.append((tables.named(results, arm), seeds, before))
    if not rows:
        return []
    name = str(results.get("metric", "score"))
    ordered = sorted(rows, key=lambda row: -(row.centre or 0.0))
    said = ", ".join(f"{row.name} {row.centre:.3f}" for row in (ordered if len(rows) <= 4 else [ordered[0], ordered[-1]]))
    title = f"Held-out {name}: {said}" if len(rows) <= 4 else f"Held-out {name}: from {said.replace(', ', ' to ')}"
    note = "Small marks: one training seed each, with its number. Bar: their mean. Dashed: the model before training."
    draw = in_rows(rows, f"{name} on held-out tasks, trained copies together")
    return [Plot("scores", title, note, draw, tables.by_seed("arm", table, "untrained"))]


def learning(results: Results, going_on: Sequence[GoingOn] = ()) -> list[Plot]:
    """Reward by training step, runs that go on included."""
    every: dict[str, dict[int, list[tuple[int, float | None]]]] = {arm: {} for arm in arm_names(results)}
    for arm, by_seed in curves(results).items():
        every.setdefault(arm, {}).update(by_seed)
    for run in going_on:
        if run.curve:
            every.setdefault(run.arm, {})[run.seed] = list(run.curve)
    window = window_of(every)
    lines = {arm: by_seed for arm, by_seed in smoothed(every, window).items() if any(by_seed.values())}
    if not lines:
        return []
    colours, _ = looks(results)
    name = str(results.get("metric", "reward"))
    ends = {arm: _end(by_seed) for arm, by_seed in lines.items()}
    shown_ends = ", ".join(f"{arm} at {end:.2f}" for arm, end in list(ends.items())[:4] if end is not None)
    title = f"{name[:1].upper()}{name[1:]} while training ends with {shown_ends}"
    points = "each point is one logged step" if window == 1 else f"each point is the mean of the last {window} logged steps"
    note = f"Thin lines: one training seed each, with its number. Bold: their mean. On training tasks; {points}."
    columns = {NARROW: 1}

    def draw(width: float) -> Drawing:
        count = columns.get(width, 2 if len(lines) in (2, 4) else 3)
        return curves_figure(lines, colours | {a: "arm0" for a in lines if a not in colours}, width, name, count)

    return [Plot("learning-curves", title, note, draw, _curve_table(lines))]


def _end(by_seed: Mapping[int, Sequence[tuple[int, float]]]) -> float | None:
    middle = mean_curve([curve for curve in by_seed.values() if curve])
    return middle[-1][1] if middle else None


def _curve_table(lines: Mapping[str, Mapping[int, Sequence[tuple[int, float]]]]) -> Table:
    columns = [(f"{arm}, seed {seed}", dict(curve)) for arm, by_seed in lines.items() for seed, curve in by_seed.items()]
    steps = sorted({step for _, curve in columns for step in curve})
    every = -(-len(steps) // MOST_STEPS)
    kept = [step for i, step in enumerate(steps) if (len(steps) - 1 - i) % every == 0]
    body = [[str(step), *(shown(curve.get(step)) for _, curve in columns)] for step in kept]
    return Table(["step", *(head for head, _ in columns)], body)


def heat_maps(cross_play: Iterable[Mapping[str, Any]]) -> list[Plot]:
    """One heat map for each record of `coterie crossplay`."""
    plots = []
    for record in cross_play:
        seeds, arm = record.get("seeds") or [], str(record["arm"])
        trained = [f"seed {seed}" for seed in seeds]
        names = [*trained, *map(str, record["players"][len(trained) :])]
        values = [[number(value) for value in row] for row in record["scores"]]
        means = record.get("means") or {}
        said = ", ".join(f"{value:.3f} {kind}" for kind, one in means.items() if (value := number(one)) is not None)
        title = f"Cross-play of {arm}: {said}" if said else f"Cross-play of {arm}"
        note = f"Each cell: the mean team reward on {record.get('held_out', '?')} held-out tasks. Framed: a player with itself."
        rows, columns = str(record["rows"]), str(record["columns"])

        def draw(width: float, names=names, values=values, rows=rows, columns=columns, arm=arm) -> Drawing:
            return heat_figure(names, values, rows, columns, min(width, 640.0), {"arm": arm})

        body = [[name, *(shown(value) for value in row)] for name, row in zip(names, values, strict=True)]
        plots.append(Plot(f"cross-play-{arm}", title, note, draw, Table([f"{rows} \\ {columns}", *names], body)))
    return plots


def _numbers(per_seed: Mapping[str, Any]) -> dict[int, float]:
    found = {int(seed): number(value) for seed, value in per_seed.items()}
    return {seed: value for seed, value in sorted(found.items()) if value is not None}
