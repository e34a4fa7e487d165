"""From the records of a folder to everything that the page says: a plain dictionary for the template. Nothing is typed by hand."""

from typing import Any

from coterie import __version__
from coterie.report.html import checks, figures, tables, talk
from coterie.report.html.plot import NARROW, WIDE, Plot, looks
from coterie.report.html.source import Source
from coterie.report.html.svg import inline
from coterie.report.markdown import of_results
from coterie.report.results import arm_names, dig, runs

CLASSES = {"moved": "good", "moved the wrong way": "bad", "unresolved": "warn"}
"""Beside a verdict, whose words are always there."""


def plots(source: Source) -> dict[str, list[Plot]]:
    """Every figure by the section that it stands in."""
    results = source.results
    return {
        "differences": figures.differences(results),
        "scores": figures.scores(results),
        "curves": figures.learning(results, source.going_on),
        "talk": [*talk.over_chance(results), *talk.talk(results, source.off)],
        "specialties": talk.specialties(results),
        "cross_play": figures.heat_maps(source.cross_play),
    }


def page(source: Source) -> dict[str, Any]:
    """What the template is filled with. Strings are plain text; drawings are SVG made of escaped parts."""
    results, conversations = source.results, source.conversations
    comparisons = results.get("comparisons") or []
    main = comparisons[0].get("metric", "score") if comparisons else "score"  # what the recipe compares by first
    arms = arm_names(results)
    return {
        "version": __version__,
        "title": str(results.get("title") or results.get("recipe", "")),
        "recipe": str(results.get("recipe", "")),
        "question": str(results.get("question") or ""),
        "model": str(results.get("model", "")),
        "profile": str(results.get("profile", "")),
        "facts": _facts(source),
        "arms": [_arm(source, arm) for arm in arms],
        "verdicts": [_verdict(row) for row in comparisons if row.get("metric", "score") == main],
        "further": [_verdict(row) for row in comparisons if row.get("metric", "score") != main],
        "comparisons": tables.comparisons(comparisons) if comparisons else None,
        "plots": {section: [_plot(one) for one in found] for section, found in plots(source).items()},
        "swarm": tables.swarm(results),
        "cost": tables.cost(results) if any(runs(results, arm) for arm in arms) else None,
        "checks": checks.together(results) if any(runs(results, arm) for arm in arms) else None,
        "every_check": checks.each(results),
        "going_on": [
            {
                "arm": run.arm,
                "seed": run.seed,
                "done": run.curve[-1][0] if run.curve else 0,
                "steps": run.steps,
                "status": run.status,
            }
            for run in source.going_on
        ],
        "markdown": of_results(results) if any(runs(results, arm) for arm in arms) else "",
        "made_with": _made_with(results),
        "notes": conversations.notes,
        "conversations": {"items": conversations.items, "tasks": conversations.tasks},
    }


def _plot(plot: Plot) -> dict[str, Any]:
    drawings = [
        (kind, inline(plot.draw(width), f"{plot.title}. {plot.note}")) for kind, width in (("wide", WIDE), ("narrow", NARROW))
    ]
    return {"id": plot.id, "title": plot.title, "note": plot.note, "drawings": drawings, "table": plot.table}


def _arm(source: Source, arm: str) -> dict[str, Any]:
    of = source.results["arms"][arm]
    seeds = list(runs(source.results, arm))
    colours, shapes = looks(source.results)
    base = arm == source.results.get("baseline")
    return {
        "name": arm,
        "change": of.get("change", ""),
        "baseline": base,
        "seeds": seeds,
        "colour": colours[arm],
        "shape": shapes[arm],
    }


def _verdict(row: Any) -> dict[str, str]:
    verdict = str(row.get("verdict", "no verdict"))
    said = str(row.get("sentence") or f"{row.get('arm')} against {row.get('baseline')}: {verdict}.")
    before, found, after = said.partition(f": {verdict}")
    parts = (f"{before}: ", verdict, after) if found else ("", verdict, f" {said}")
    return {"before": parts[0], "verdict": parts[1], "after": parts[2], "class": CLASSES.get(verdict, "")}


def _facts(source: Source) -> list[tuple[str, str]]:
    results = source.results
    every = [run for arm in arm_names(results) for run in runs(results, arm).values()]
    seeds = sorted({seed for arm in arm_names(results) for seed in runs(results, arm)})
    sizes = sorted({int(size) for run in every if (size := dig(run, "held_out")) is not None})
    steps = sorted({int(count) for run in every if (count := dig(run, "steps")) is not None})
    found = [("recipe", results.get("recipe")), ("model", results.get("model")), ("profile", results.get("profile"))]
    found += [("training seeds", ", ".join(map(str, seeds))), ("training steps", " or ".join(map(str, steps)))]
    found += [("held-out tasks", " or ".join(f"{size:,}" for size in sizes)), ("compared by", results.get("metric"))]
    return [(name, str(value)) for name, value in found if value]


def _made_with(results: Any) -> list[tuple[str, str]]:
    machine, sampling = results.get("machine") or {}, results.get("sampling") or {}
    facts = [*(results.get("versions") or {}).items(), *((name, value) for name, value in machine.items() if value is not None)]
    facts += [
        (f"sampling, {kind}", ", ".join(f"{k} {v}" for k, v in of.items())) for kind, of in sampling.items() if isinstance(of, dict)
    ]
    return [(str(name), str(value)) for name, value in facts]
