"""Results as Markdown, and README files whose tables are made from the records.

A README holds a block for each folder of records beside it:

    <!-- results: pocket -->
    (what `of_folder` makes of results/pocket)
    <!-- end of results -->

`python -m coterie.report.markdown README.md …` writes the blocks anew; a test holds every README of the recipes to its records.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from coterie.experiment import summarise
from coterie.recipe import load_recipe
from coterie.report.results import Results, arm_mean, arm_names, dig, mean, number, runs, worst_cut
from coterie.report.terminal import MEASURES, SWARM, cast_name, casts, others

_BLOCK = re.compile(r"(<!-- results: (?P<folder>[\w.+-]+) -->\n).*?(<!-- end of results -->)", re.DOTALL)


def of_results(results: Results) -> str:
    """Scores of every seed, measures, verdicts with their sentences, cost, and with what they were made."""
    parts = [scores(results), _measures(results), _specialties(results), _comparisons(results)]
    parts.append("\n".join(f"- {row['sentence']}" for row in results.get("comparisons") or []))
    parts.append(_made_with(results))
    return "\n\n".join(part for part in parts if part)


def of_folder(recipe: str | Path, folder: Path) -> str:
    return of_results(summarise(load_recipe(str(recipe)), folder))


def fill(text: str, recipe: Path) -> str:
    """`text`, a README of `recipe` (its folder), with each block made anew."""

    def block(match: re.Match[str]) -> str:
        folder = recipe / "results" / match["folder"]
        made = of_folder(recipe, folder) if folder.is_dir() else "No results yet."
        return f"{match[1]}\n{made}\n\n{match[3]}"

    return _BLOCK.sub(block, text)


def scores(results: Results) -> str:
    """Held-out scores: means, every seed, and the untrained model."""
    arms = arm_names(results)
    seeds = sorted({seed for arm in arms for seed in runs(results, arm)})
    head = ["arm", "mean", *(f"seed {seed}" for seed in seeds), "untrained"]
    rows = [
        [
            _named(results, arm),
            _score(arm_mean(results, arm, "score")),
            *(_score(dig(runs(results, arm).get(seed, {}), "score")) for seed in seeds),
            _score(arm_mean(results, arm, "before", "score")),
        ]
        for arm in arms
    ]
    return _table(head, rows)


def _measures(results: Results) -> str:
    arms = arm_names(results)
    columns = [(head, [_share(arm_mean(results, arm, "measures", key)) for arm in arms]) for key, head in MEASURES.items()]
    columns.append(("characters", [_whole(arm_mean(results, arm, "measures", "message_chars")) for arm in arms]))
    columns.append(("cut", [_share(mean([worst_cut(run) for run in runs(results, arm).values()])) for arm in arms]))
    for cast in casts(results):
        columns.append((cast_name(cast), [_score(arm_mean(results, arm, "cross_play", cast, "score")) for arm in arms]))
    for name in others(results):
        columns.append((f"as {name}", [_score(arm_mean(results, arm, "also", name, "score")) for arm in arms]))
    columns += [(head, [_sized(arm_mean(results, arm, "swarm", key)) for arm in arms]) for key, head in SWARM.items()]
    for head, key in (("episodes", "episodes"), ("tokens", "sampled_tokens"), ("replays", "replays")):
        columns.append((head, [_whole(arm_mean(results, arm, "cost", key)) for arm in arms]))
    columns.append(("minutes", [_tenth(arm_mean(results, arm, "minutes", "train")) for arm in arms]))
    shown = [(head, cells) for head, cells in columns if any(cell != "–" for cell in cells)]
    rows = [[_named(results, arm), *(cells[row] for _, cells in shown)] for row, arm in enumerate(arms)]
    return _table(["arm", *(head for head, _ in shown)], rows)


def _specialties(results: Results) -> str:
    """Of runs that are swarms: held-out scores by specialty and, where nodes have models of several kinds, by model."""
    arms = arm_names(results)
    every = [run for arm in arms for run in runs(results, arm).values()]
    names = list(dict.fromkeys(name for run in every for name in run.get("specialties") or {}))
    models = list(dict.fromkeys(model for run in every for model in (run.get("swarm") or {}).get("by_model") or {}))
    sources: list[tuple[str, tuple[str, ...]]] = [("", ())]
    if len(models) > 1:
        sources = [(f", {model}", ("swarm", "by_model", model)) for model in models]
    rows = [
        [
            f"{_named(results, arm)}{of}",
            _score(arm_mean(results, arm, *path, "score")),
            *(_score(arm_mean(results, arm, *path, "specialties", name)) for name in names),
        ]
        for arm in arms
        for of, path in sources
    ]
    return _table(["arm", "all", *names], rows) if names else ""


def _comparisons(results: Results) -> str:
    rows = []
    for row in results.get("comparisons") or []:
        low, high = row.get("interval") or (None, None)
        interval = "–" if number(low) is None else f"{low:+.3f} to {high:+.3f}"
        p, by = number(row.get("p_holm")), row.get("metric", "score")
        rows.append(
            [
                f"{row['arm']} − {row['baseline']}" + ("" if by == "score" else f", {by}"),
                f"{row['delta']:+.3f}",
                interval,
                "–" if p is None else f"{p:.2g}",
                str(row.get("n")),
                _score(number(row.get("smallest_effect"))),
                f"**{row['verdict']}**",
            ]
        )
    return _table(["comparison", "change", "95 % interval", "p (Holm)", "seeds", "could see", "verdict"], rows) if rows else ""


def _made_with(results: Results) -> str:
    versions, machine = results.get("versions") or {}, results.get("machine") or {}
    where = machine.get("card") or f"a CPU, {machine.get('threads')} thread a run"
    kept = ", ".join(f"{name} {versions[name]}" for name in ("torch", "transformers", "peft") if name in versions)
    return f"Model {results.get('model')}, profile {results.get('profile')}, on {where}; {kept}."


def _named(results: Results, arm: str) -> str:
    return f"{arm} (baseline)" if arm == results.get("baseline") else arm


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _score(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _tenth(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _sized(value: float | None) -> str:
    return _share(value) if value is None or abs(value) < 10 else _whole(value)


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(fill(path.read_text(encoding="utf-8"), path.parent), encoding="utf-8")
