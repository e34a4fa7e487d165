"""A smoke run: every arm of a recipe for two steps on a few tasks, to see within a minute that it plays, trains and scores.

It plays the recipe's own arms with the built-in model on a CPU, in the same way as a whole run: worker processes, checkpoints,
held-out scores. It gives no verdict, and the conditions in its records are its own, so that they cannot be mistaken for others.
"""

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from coterie.config import RunConfig
from coterie.config.learn import BUILT_IN
from coterie.experiment import Experiment, plan
from coterie.layers import leaves, parse_overrides
from coterie.recipe import Recipe, resolve
from coterie.records import read_json, read_lines
from coterie.types import CoterieError

STEPS = 2
NODES = 2
SIZES: dict[str, dict[str, int]] = {
    "train": {"steps": STEPS, "tasks_per_step": 2, "checkpoint_every": STEPS},
    "tasks": {"train": 16, "held_out": 4},
    "evaluate": {"episodes": 1, "repeats": 1},
}
"""Upper bounds of the recipe's own sizes."""


def plan_smoke(recipe: Recipe, arms: Sequence[str], sets: Sequence[str], out: Path | None) -> Experiment:
    """The recipe's runs at the smallest size: its first seed, the profile of the built-in model. Into a new temporary folder when
    `out` is None; writes nothing yet. Raises CoterieError where there is no such profile, and for a setting that a smoke run has
    its own value of."""
    own = [*(f"{table}.{key}" for table, of in SIZES.items() for key in of), "model.path", "model.device"]
    for key in leaves(parse_overrides(sets)):
        if key in own:
            raise CoterieError(f"--set {key} contradicts --smoke, which has its own value of it; leave one of them out")
    folder = out or Path(tempfile.gettempdir()) / f"coterie-smoke-{recipe.name}-{secrets.token_hex(4)}"
    whole = plan(recipe, profile=_pocket_profile(recipe), arms=arms, seeds=recipe.file.seeds[:1], sets=sets, out=folder)
    return replace(whole, jobs=tuple(replace(job, config=small(job.config)) for job in whole.jobs))


def refuse(given: Mapping[str, Any]) -> None:
    """`given` holds the options of `coterie run` that --smoke decides itself."""
    for name, value in given.items():
        if value is not None and value is not False and value != ():
            raise CoterieError(f"--smoke decides about {name} itself; leave {name} out, or leave out --smoke")


def small(config: RunConfig) -> RunConfig:
    changed: dict[str, Any] = {"model": config.model.model_copy(update={"device": "cpu"})}
    for table, sizes in SIZES.items():
        of = getattr(config, table)
        if table == "train" and config.swarm:  # a round must hold own groups and others'
            sizes = {key: size for key, size in sizes.items() if key != "tasks_per_step"}
        fitting = {key: min(size, now) for key, size in sizes.items() if isinstance(now := getattr(of, key, None), int)}
        changed[table] = of.model_copy(update=fitting)
    if config.swarm:
        changed["swarm"] = config.swarm.model_copy(update={"nodes": min(NODES, config.swarm.nodes)})
    return config.model_copy(update=changed)


def _pocket_profile(recipe: Recipe) -> str:
    for profile in sorted(recipe.file.profiles, key=lambda name: name != "pocket"):
        if resolve(recipe, profile=profile, arm=recipe.file.baseline, seed=0, overrides={}).model.path in BUILT_IN:
            return profile
    raise CoterieError(
        f"--smoke plays the built-in model, and recipe {recipe.name} has no profile with model.path = pocket; add one, "
        "or try the recipe with --steps 2"
    )


def print_smoke(plan: Experiment, console: Console) -> None:
    """What each arm did: rows trained, and the held-out score that two steps are too few to mean anything."""
    for job in plan.jobs:
        if not job.folder.finished or job.seed is None:
            continue
        metrics = read_lines(job.folder.metrics_file)
        rows, live = (sum(step[key] for step in metrics) for key in ("rows", "live_rows"))
        result = read_json(job.folder.result_file)
        score = "no episode could be graded" if result["score"] is None else f"score {result['score']:.2f}"
        trained = f"{len(metrics)} steps, {rows} rows, {live} of them with an advantage"
        console.print(f"  {job.arm}: {trained}; {score} on {result['held_out']} tasks", markup=False, soft_wrap=True)
    console.print("A smoke run shows that the recipe plays. It is no experiment, and there is no verdict.", soft_wrap=True)
    console.print(f"Its runs are in {plan.out}; remove them when you have looked.", markup=False, soft_wrap=True)
