"""A recipe in the terminal: its question, and each arm as its difference to the baseline. Nothing depends on colour."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from coterie.arms import Change, changes, is_one
from coterie.recipe import Recipe

_METRICS = {
    "score": "team reward on held-out tasks",
    "cross_play": "team reward with a stranger in the other seats",
    "also": "team reward under another protocol",
    "swarm.reward": "mean reward of own fresh questions, over all rounds",
    "swarm.training_reward": "mean reward of all that rounds learned from, others' chosen groups included",
}


def print_explanation(recipe: Recipe, profile: str, console: Console) -> None:
    """Title and question, what is compared and over which seeds, then every arm: its sentence, and the settings in which it differs
    from the baseline under `profile`, as key, baseline value -> arm value."""
    file = recipe.file
    seeds = file.profiles[profile].seeds or file.seeds
    console.print(Text.assemble((recipe.name, "bold"), f": {file.title}"))
    console.print(Text(file.question))
    console.print()
    facts = Table.grid(padding=(0, 2))
    facts.add_row("profile", Text(f"{profile}: {file.profiles[profile].about}"))
    facts.add_row("seeds", " ".join(map(str, seeds)))
    facts.add_row("compared by", Text(", then ".join(f"{metric} ({_about(metric)})" for metric in file.metrics)))
    facts.add_row("smallest effect", f"{file.min_effect:g} (a smaller difference is of no interest here)")
    console.print(facts)
    for arm, found in changes(recipe, profile).items():
        baseline = arm == file.baseline
        console.print()
        console.print(Text.assemble((arm, "bold"), " (baseline)" if baseline else ""))
        console.print(Padding(Text(file.arms[arm].change), (0, 0, 0, 2), expand=False))
        if not baseline:
            console.print(Padding(Text(_count(found, file.arms[arm].why_several)), (0, 0, 0, 2), expand=False))
            console.print(Padding(_table(found), (0, 0, 0, 4), expand=False))


def _about(metric: str) -> str:
    return _METRICS.get(metric) or _METRICS[metric.partition(".")[0]]


def _count(found: Sequence[Change], why_several: str | None) -> str:
    if is_one(found):
        return f"1 change: {found[0].key}" if len(found) == 1 else f"1 change: another kind of {found[0].table}, with its settings"
    return f"{len(found)} changes: {why_several}"


def _table(found: Sequence[Change]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    for _ in range(3):
        table.add_column(overflow="fold")
    for change in found:
        table.add_row(Text(change.key), Text(_written(change.baseline)), "->", Text(_written(change.arm), "bold"))
    return table


def _written(value: Any) -> str:
    """As it is written in a recipe; a dash where an arm has no such setting."""
    return "-" if value is None else json.dumps(value, ensure_ascii=False)
