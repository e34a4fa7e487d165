"""The commands `coterie compare` and `coterie plan`."""

import json as jsonlib
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from coterie.cli_options import Flag, Plugins
from coterie.types import CoterieError

console = Console(highlight=False)


def compare(
    folder: Path | None = None,
    /,
    *,
    published: Path | None = None,
    recipe: str | None = None,
    variance: Annotated[bool, Flag] = False,
    passk: Annotated[int | None, Parameter(name="--pass")] = None,
    json: Path | None = None,
    records: Path | None = None,
    plugin: Plugins = (),
) -> None:
    """Compare the arms of finished runs over their seeds.

    Parameters
    ----------
    folder
        A folder of run folders (runs/talk-to-solve) or of committed records (recipes/talk-to-solve/results/MODEL).
    published
        In place of a folder, a JSON file of scores that others published by seed: each comparison by our rule, beside theirs.
    recipe
        The recipe that says which arm is the baseline; by default the one that the records name.
    variance
        Also say how much of the spread is the seeds', the tasks' and sampling's, and which of them more would help.
    passk
        Also pass@1, pass@K and pass^K of each arm, for runs with K episodes or more of each held-out task.
    json
        Also write the summary to this file.
    records
        Also copy the record of each finished run into this folder, as ARM-seedK.json, to be kept and compared later.
    plugin
        As in `coterie run`; plugins that the recipe names need not be given.
    """
    from coterie.records import write_json
    from coterie.report.tasks import pass_rows, pass_table, variance_rows
    from coterie.report.terminal import print_results
    from coterie.results import keep_records, read_records, rewards_by_arm

    if (folder is None) == (published is None):
        raise CoterieError("coterie compare takes a folder of runs, or --published with a file: give one of the two")
    if published is not None:
        _compare_published(published, json, recipe or variance or passk or records)
        return
    assert folder is not None
    results = _summary(folder, recipe, plugin)
    trained, untrained = read_records(folder)
    by_arm = rewards_by_arm(trained) if variance or passk is not None else {}
    if variance:
        results["variance"] = variance_rows(by_arm, results["baseline"])
    if passk is not None:
        results["passes"] = pass_rows(by_arm, passk)
    print_results(results, console)
    for row in results.get("variance", ()):
        console.print(row["sentence"], markup=False)
    if passk is not None:
        console.print(pass_table(results["passes"]))
    if json:
        write_json(json, results)
    if records:
        kept = keep_records(trained, untrained, records)
        console.print(f"{kept} records are in {records}", markup=False, soft_wrap=True)


def plan(
    *,
    sd: float | None = None,
    effect: float | None = None,
    alpha: float = 0.05,
    power: float = 0.8,
    comparisons: int | None = None,
    runs: Annotated[Path | None, Parameter(name="--from")] = None,
    recipe: str | None = None,
    minutes: float | None = None,
    workers: int = 1,
    minutes_per_run: float | None = None,
    arms: int = 2,
    json: Annotated[bool, Flag] = False,
    plugin: Plugins = (),
) -> None:
    """How many training seeds a comparison needs, or how many fit into a budget and what they would see.

    Parameters
    ----------
    sd
        Standard deviation of the per-seed difference between two arms, in score points (0.05 = five points of a hundred).
    effect
        The true difference that is to be seen, in score points; with --from, the recipe's smallest effect when absent.
    alpha
        The chance of a false "moved".
    power
        The chance of seeing the effect.
    comparisons
        Comparisons that the verdict must hold among (Holm's strictest step); 1, or with --from those of the recipe.
    runs
        Take sd and minutes from finished runs or committed records in this folder.
    recipe
        As in `coterie compare`.
    minutes
        A budget: minutes of wall clock.
    workers
        Runs played at once.
    minutes_per_run
        Training and evaluation of one run; those of the finished runs with --from.
    arms
        Arms that are trained for each seed; with --from those of the finished runs.
    json
        Print JSON.
    plugin
        As in `coterie run`.
    """
    from coterie.stats.plan import seeds_that_fit, visible

    if sd is None and runs is None:
        raise CoterieError("coterie plan needs --sd, or --from with a folder of finished runs")
    spreads: list[dict[str, Any]] = []
    by_arm = [] if minutes_per_run is None else [minutes_per_run] * arms
    if runs is not None:
        results = _summary(runs, recipe, plugin)
        spreads, smallest = _spreads(results), _primary(results)[0]["min_effect"] if _primary(results) else None
        effect = smallest if effect is None else effect
        comparisons = max(1, len(_primary(results))) if comparisons is None else comparisons
        by_arm = [minutes_per_run] * len(results["arms"]) if minutes_per_run is not None else _minutes(results)
    if sd is not None:
        spreads = [{"of": "given", "sd": sd}]
    if not spreads:
        raise CoterieError(f"{runs}: no comparison there has two paired seeds, so there is no sd to plan with; give --sd")
    if effect is None and minutes is None:
        raise CoterieError("coterie plan needs --effect, the difference to be seen, or --minutes, a budget; or both")
    if minutes is not None and not by_arm:
        raise CoterieError("a budget needs the minutes of a run: give --minutes-per-run, or --from with a folder of finished runs")
    rule = {"alpha": alpha, "power": power, "comparisons": 1 if comparisons is None else comparisons}
    budget = None if minutes is None else {"minutes": minutes, "workers": workers, "minutes_by_arm": by_arm}
    if budget:
        budget["seeds"] = seeds_that_fit(by_arm, minutes or 0.0, workers)
    for one in spreads:
        one |= _needs(one["sd"], effect, rule)
        if budget:
            one["budget_sees"] = visible(budget["seeds"], one["sd"], **rule)
    found = {**rule, "effect": effect, "budget": budget, "plans": spreads}
    if json:
        print(jsonlib.dumps(found, indent=2, allow_nan=False))
        return
    for line in _plan_lines(found):
        console.print(line, markup=False)


def _summary(folder: Path, recipe: str | None, plugin: Sequence[Path]) -> dict[str, Any]:
    """The summary of a folder's runs, by the recipe that is given or that its records name."""
    from coterie.experiment import summarise
    from coterie.recipe import load_recipe
    from coterie.results import read_records

    trained, untrained = read_records(folder)
    named = recipe or next(iter([*trained, *untrained.values()]))["recipe"]
    try:
        known = load_recipe(named, tuple(plugin))
    except CoterieError as error:
        if recipe:
            raise
        raise CoterieError(
            f"the runs in {folder} are of recipe {named}, which is not built in; give its file with --recipe"
        ) from error
    return summarise(known, folder)


def _compare_published(file: Path, json: Path | None, other: Any) -> None:
    from coterie.records import read_json, write_json
    from coterie.report.published import published_lines, published_table
    from coterie.stats.published import judge

    if other:
        raise CoterieError("--published goes with --json only: a file of published scores holds no runs")
    if not file.is_file():
        raise CoterieError(f"{file}: there is no such file; --published takes a JSON file of scores by seed")
    try:
        judged = judge(read_json(file))
    except CoterieError as error:
        raise CoterieError(f"{file}: {error}") from error
    console.print(published_table(judged))
    console.print()
    for line in published_lines(judged):
        console.print(line, markup=False)
    if json:
        write_json(json, {"comparisons": [one.row() for one in judged]})


def _primary(results: dict[str, Any]) -> list[dict[str, Any]]:
    """The comparisons by the recipe's first metric."""
    rows = results["comparisons"]
    return [row for row in rows if row["metric"] == rows[0]["metric"]]


def _spreads(results: dict[str, Any]) -> list[dict[str, Any]]:
    from coterie.stats.plan import sd_range

    return [
        {"of": f"{row['arm']} − {row['baseline']}", "sd": row["sd"], "seeds": row["n"], "sd_range": sd_range(row["sd"], row["n"])}
        for row in _primary(results)
        if row["paired"] and row["sd"] is not None
    ]


def _minutes(results: dict[str, Any]) -> list[float]:
    """The mean minutes of a run of each arm, training and evaluation; empty where a record has none."""
    means = []
    for arm in results["arms"].values():
        took = [sum(value or 0.0 for value in (run["minutes"] or {}).values()) for run in arm["seeds"].values()]
        if not took or min(took) <= 0:
            return []
        means.append(sum(took) / len(took))
    return means


def _needs(sd: float, effect: float | None, rule: dict[str, Any]) -> dict[str, Any]:
    from coterie.stats.plan import plan as plan_seeds

    if effect is None:
        return {}
    found = asdict(plan_seeds(sd, effect, **rule))
    return {key: found[key] for key in ("for_significance", "for_power")}


def _plan_lines(found: dict[str, Any]) -> list[str]:
    share, budget = f"{100 * found['power']:g} %", found["budget"]
    among = f", among {found['comparisons']} comparisons" if found["comparisons"] > 1 else ""
    lines = []
    if budget:
        each = f"{math.fsum(budget['minutes_by_arm']):.3g} minutes for the {len(budget['minutes_by_arm'])} arms of a seed"
        workers = f"{budget['workers']} worker{'s' * (budget['workers'] != 1)}"
        lines.append(f"In {budget['minutes']:g} minutes with {workers}, at {each}: {budget['seeds']:,} seeds fit.")
    for one in found["plans"]:
        seen = f"sd of a per-seed difference {one['sd']:.4g}"
        if "sd_range" in one:
            low, high = one["sd_range"]
            seen = f"{one['of']}: {seen} over {one['seeds']} seeds (the true one: {low:.3g} to {high:.3g} with 95 % confidence)"
        lines.append(f"{seen}.")
        if found["effect"] is not None:
            few, many = (_seeds(one[key]) for key in ("for_significance", "for_power"))
            lines.append(f"  An effect of {found['effect']:g} is significant at alpha {found['alpha']:g}{among}:")
            lines.append(f"    if exactly it is seen: {few}")
            lines.append(f"    with {share} power: {many}")
        if budget:
            sees = one["budget_sees"]
            said = "No effect can be seen: two seeds are the least" if sees is None else f"They would see an effect of {sees:.3g}"
            lines.append(f"  {said}{'' if sees is None else f' with {share} power{among}'}.")
    return lines


def _seeds(count: int | None) -> str:
    return "no number of seeds would do" if count is None else f"{count:,} paired seeds"
