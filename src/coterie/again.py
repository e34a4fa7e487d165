"""What is done with a run after it has finished: score it again, or listen to one conversation."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from coterie.config import RunConfig
from coterie.config.learn import BUILT_IN
from coterie.config_errors import describe
from coterie.kinds import load_plugins, run_config
from coterie.recipe import load_recipe, merge, parse_overrides
from coterie.records import write_json
from coterie.runs import RunFolder
from coterie.types import CoterieError, Episode, Task

if TYPE_CHECKING:
    from coterie.assemble import Stage

_FIXED = ("train", "model.path", "model.adapter", "recipe", "profile", "arm", "seed")
"""What a trained run cannot change afterwards."""


def assemble_here(config: RunConfig) -> "Stage":
    """Assemble in this process, with the threads of a worker: for the tiny built-in model, threads cost more than they save."""
    import warnings

    import torch

    from coterie.assemble import assemble
    from coterie.loading import be_quiet

    be_quiet()
    warnings.simplefilter("ignore", FutureWarning)  # of the libraries

    if config.model.path in BUILT_IN:
        torch.set_num_threads(1)
    return assemble(config)


def trained_stage(folder: RunFolder, config: RunConfig) -> tuple["Stage", int]:
    """The run's model with its latest checkpoint loaded, and that checkpoint's step."""
    from coterie.learn import checkpoint
    from coterie.learn.learner import Learner

    folder.refuse_swarm()
    found = checkpoint.latest(folder.checkpoints)
    if found is None and config.train.steps:
        raise CoterieError(f"{folder.path}: holds no checkpoint yet; go on with the run first (coterie run … --resume)")
    stage = assemble_here(config)
    learner = Learner(stage.model, config.train, seed=config.seed)
    if found:
        checkpoint.load(found, learner)
    step = learner.step_index  # of a swarm's node: its rounds
    stage.engine.refresh(step)
    return stage, step


def with_settings(folder: RunFolder, sets: Sequence[str], plugins: Sequence[Path] = ()) -> RunConfig:
    overrides = parse_overrides(sets)
    for pair in sets:
        key = pair.partition("=")[0]
        if any(key == fixed or key.startswith(f"{fixed}.") for fixed in _FIXED):
            raise CoterieError(f"--set {pair}: a finished run's {key} cannot be changed")
    written = folder.config().model_dump(mode="json", exclude_none=True)
    further = [plugin for plugin in load_plugins(plugins) if plugin not in written["plugins"]]
    merged = merge(written, {**overrides, "plugins": [*written["plugins"], *further]})
    try:
        return run_config().model_validate(merged)
    except ValidationError as error:
        raise CoterieError(f"the command line: {describe(error, run_config())}") from None


def evaluate_again(path: Path, sets: Sequence[str], name: str, plugins: Sequence[Path] = ()) -> tuple[dict[str, Any], Path]:
    """Score the latest checkpoint with changed settings; writes evaluations/NAME.json and refuses to overwrite one."""
    from coterie.scoring import score_run

    folder = RunFolder(path)
    if not name.replace("-", "").replace("_", "").isalnum():
        raise CoterieError(f"--name {name}: use letters, digits, - and _ only")
    target = path / "evaluations" / f"{name}.json"
    config = with_settings(folder, sets, plugins)
    if target.exists():
        raise CoterieError(f"{target} exists; choose another --name")
    stage, step = trained_stage(folder, config)
    result = {**score_run(stage)[0], "steps": step, "settings": list(sets)}
    write_json(target, result)
    return result, target


def converse(
    recipe: str,
    *,
    run: Path | None,
    arm: str | None,
    index: int,
    seed: int,
    profile: str | None,
    model: str | None,
    sets: Sequence[str],
    cuda: bool,
    plugins: Sequence[Path] = (),
) -> tuple[Task, Episode]:
    """One held-out task, played once by the run's copies or by the untrained model."""
    from coterie.experiment import plan
    from coterie.hall import Plan
    from coterie.play import play

    file = load_recipe(recipe, plugins)
    if run is not None:
        config = with_settings(RunFolder(run), sets, plugins)
        if config.recipe != file.name:
            raise CoterieError(f"{run} is a run of {config.recipe}, not of {file.name}")
        if arm is not None and arm != config.arm:
            raise CoterieError(f"{run} is a run of arm {config.arm}; leave --arm out")
        stage, _ = trained_stage(RunFolder(run), config)
    else:
        arms = [arm] if arm is not None else [list(file.file.arms)[-1]]
        planned = plan(file, profile=profile, model=model, arms=arms, sets=sets, cuda=cuda)
        stage = assemble_here(planned.jobs[-1].config)
    held_out = stage.tasks.held_out
    if not 0 <= index < len(held_out):
        raise CoterieError(f"--task {index}: there are {len(held_out)} held-out tasks, counted from 0")
    task = held_out[index]
    hall = replace(stage.evaluation_hall, seed=seed)
    cast = stage.cast.players(stage.hall.protocol.seats, 0)
    return task, play([Plan(task, 0, cast, ("chat",))], hall)[0]
