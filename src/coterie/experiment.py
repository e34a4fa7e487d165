"""An experiment: the runs of a recipe, from names on the command line to a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.arms import check_arms, declared
from coterie.checks import as_json, over_chance
from coterie.checks import check_folder as check_runs
from coterie.config import RunConfig
from coterie.recipe import Recipe, choose_arms, choose_profile, parse_overrides, resolve
from coterie.records import write_json
from coterie.results import check_comparable, folders_of, gather, read_records
from coterie.runs import RunFolder
from coterie.types import CoterieError

UNTRAINED_SEED = 0
"""The seed of an arm's untrained evaluation, which belongs to no training seed."""


@dataclass(frozen=True, slots=True)
class Job:
    """One folder to be played; `seed` is None for an arm's untrained evaluation."""

    arm: str
    seed: int | None
    folder: RunFolder
    config: RunConfig


@dataclass(frozen=True, slots=True)
class Experiment:
    recipe: Recipe
    profile: str
    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    out: Path
    jobs: tuple[Job, ...]


def plan(
    recipe: Recipe,
    *,
    profile: str | None = None,
    model: str | None = None,
    arms: Sequence[str] = (),
    seeds: Sequence[int] = (),
    steps: int | None = None,
    sets: Sequence[str] = (),
    out: Path | None = None,
    cuda: bool = False,
) -> Experiment:
    """Resolve every run of the experiment. Raises CoterieError for anything that does not exist or does not fit; writes nothing."""
    overrides = parse_overrides(sets)
    if model is not None:
        overrides.setdefault("model", {})["path"] = model
    if steps is not None:
        overrides.setdefault("train", {})["steps"] = steps
    chosen = choose_profile(recipe, profile, overrides.get("model", {}).get("path"), cuda)
    arm_names = choose_arms(recipe, arms)
    seed_list = list(dict.fromkeys(seeds or recipe.file.profiles[chosen].seeds or recipe.file.seeds))
    folder = out or Path("runs") / recipe.name
    if any(seed < 0 for seed in seed_list):
        raise CoterieError("--seeds: a seed is a whole number from 0")
    configs = {
        (arm, seed): resolve(recipe, profile=chosen, arm=arm, seed=seed, overrides=overrides)
        for arm in arm_names
        for seed in seed_list
    }
    there = {arm for arm in recipe.file.arms if any(folder.glob(f"{arm}-seed*/config.toml"))}
    check_arms(recipe, chosen, overrides, {*arm_names, *there})
    first = next(iter(configs.values()))
    if first.train.steps == 0:
        raise CoterieError(
            "train.steps = 0 trains nothing; to score the untrained model give 1 or more, it is scored beside every arm"
        )
    jobs = []
    for arm, seed, run in folders_of(folder, arm_names, seed_list, first.evaluate.before):
        config = configs[arm, seed] if seed is not None else untrained(configs[arm, seed_list[0]])
        jobs.append(Job(arm, seed, run, config))
    return Experiment(recipe, chosen, tuple(arm_names), tuple(seed_list), folder, tuple(jobs))


def untrained(config: RunConfig) -> RunConfig:
    """The configuration that scores an arm's model before training."""
    return config.model_copy(update={"seed": UNTRAINED_SEED, "train": config.train.model_copy(update={"steps": 0})})


def prepare(experiment: Experiment, resume: bool) -> list[Job]:
    """Check everything that can be checked before the first step, then make the folders. Returns the jobs still to be played."""
    from coterie.assemble import write_script

    for job in experiment.jobs:
        job.folder.check(job.config, resume)
    check_folder(experiment)
    todo = [job for job in experiment.jobs if not job.folder.finished]
    for job in {job.arm: job for job in todo}.values():  # the last of each arm: one that trains, which meets partners, comes last
        if job.config.swarm is None:
            write_script(job.config)
        else:
            from coterie.swarm.settings import check_run

            check_run(job.config)
    for job in todo:
        job.folder.create(job.config)
    return todo


def check_folder(experiment: Experiment) -> None:
    """Make sure that what is planned can be compared with the finished runs that lie in the folder already."""
    planned = [
        {
            "recipe": job.config.recipe,
            "profile": job.config.profile,
            "arm": job.arm,
            "seed": job.config.seed,
            "steps": job.config.train.steps,
            "conditions": job.config.conditions(),
        }
        for job in experiment.jobs
        if not job.folder.finished
    ]
    there = read_records(experiment.out) if any(experiment.out.glob("*/result.json")) else ([], {})
    check_comparable(experiment.out, [*there[0], *there[1].values(), *planned], declared(experiment.recipe))


def summarise(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """The summary of all finished runs in a folder."""
    trained, before = read_records(folder)
    file = recipe.file
    check_comparable(folder, [*trained, *before.values()], declared(recipe))
    return gather(
        trained,
        before,
        title=file.title,
        question=file.question,
        baseline=file.baseline,
        changes={name: arm.change for name, arm in file.arms.items()},
        min_effect=file.min_effect,
        metrics=file.metrics,
        also_against=file.also_against,
    )


def write_results(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Summarise a folder of runs, check each, and write its results.json."""
    results = summarise(recipe, folder)
    trained, _ = read_records(folder)
    if trained:
        results |= {"over_chance": over_chance(trained), "checks": as_json(check_runs(folder))}
    write_json(folder / "results.json", results)
    return results
