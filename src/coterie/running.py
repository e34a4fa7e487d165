"""What `coterie run` does with a plan: announce it, play its runs in worker processes, say which failed, show what came out."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from coterie.checks import faults
from coterie.config import RunConfig
from coterie.experiment import Experiment, Job
from coterie.launch.local import Failure, default_workers, gpu_sets, play_runs
from coterie.report.progress import Watcher
from coterie.track.base import Open
from coterie.track.follow import followed
from coterie.types import CoterieError


def gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def announce(plan: Experiment, todo: Sequence[Job], profile: str | None, console: Console) -> None:
    """What is going to be played. `profile` is the one that was asked for, if any."""
    file = plan.recipe.file
    chosen = plan.profile
    why = ""
    if profile is None and chosen != file.profile and file.other_models:
        why = " (chosen for a model other than the built-in one; --profile names another)"
    config = plan.jobs[0].config
    console.print(f"[bold]{plan.recipe.name}[/bold]: {file.title}")
    console.print(f"  profile {chosen}{why}: model {config.model.path}, tasks {config.tasks.kind}", markup=False, soft_wrap=True)
    seeds = " ".join(map(str, plan.seeds))
    steps = max(job.config.train.steps for job in plan.jobs)
    console.print(f"  arms {', '.join(plan.arms)}; seeds {seeds}; {steps} steps; into {plan.out}", markup=False, soft_wrap=True)
    done = len(plan.jobs) - len(todo)
    if done:
        console.print(f"  {done} of {len(plan.jobs)} runs are finished already and are not played again", markup=False)


def play(
    todo: Sequence[Job],
    workers: int | None,
    threads: int | None,
    console: Console,
    trackers: Mapping[str, Open] | None = None,
    errors: Console | None = None,
) -> list[Failure]:
    """Play all jobs, each worker with a GPU (or set of them) to itself where there are some. What a tracker has to say goes to
    `errors`."""
    if not todo:
        return []
    about = todo[0].config
    cards = [] if about.model.device == "cpu" else gpu_sets(gpus(), os.environ.get("CUDA_VISIBLE_DEVICES"), gpus_of(about))
    crew = workers or default_workers(len(todo), len(cards))
    apart = about.swarm.nodes if about.swarm and not about.swarm.lockstep else 1  # processes of one run
    crew = crew if workers or cards else max(1, crew // apart)
    share = threads or (max(1, (os.cpu_count() or 1) // (crew * apart)) if cards else 1)
    with (
        Watcher(console, [(job.folder, job.config.train.steps) for job in todo]) as watch,
        followed([job.folder for job in todo if job.seed is not None], trackers or {}, errors or console),
    ):
        return play_runs([job.folder for job in todo], crew, share, watch, cards)


def gpus_of(config: RunConfig) -> int:
    """How many GPUs one run can use: one for each node that is a process, or those that vLLM spreads its copy over, or one."""
    if config.swarm is not None and not config.swarm.lockstep:
        return config.swarm.nodes
    return (config.engine.tensor_parallel or 1) if config.engine.kind == "vllm" else 1


def check_counts(workers: int | None, threads: int | None) -> None:
    for name, value in (("--workers", workers), ("--threads", threads)):
        if value is not None and value < 1:
            raise CoterieError(f"{name} {value}: give 1 or more")


def report_failures(failures: Sequence[Failure], count: int, errors: Console, remedy: str) -> int:
    """Print what failed; returns the exit code: 2 when all of it was a mistake in what was given."""
    for failure in failures:
        errors.print(f"coterie: {failure.folder.name}: {failure.error}", markup=False, soft_wrap=True)
    if failures:
        errors.print(f"coterie: {len(failures)} of {count} runs did not finish; {remedy}.")
    return (2 if all(f.kind == "user" for f in failures) else 1) if failures else 0


def report_checks(results: Mapping[str, Any], out: Path, console: Console) -> None:
    """One line when a check of any run found a fault."""
    found, runs = faults(results.get("checks", {}))
    if found:
        said = f"{found} check{'s' * (found > 1)} of {runs} run{'s' * (runs > 1)} found something; `coterie check {out}` shows them"
        console.print(said, markup=False, soft_wrap=True)


def draw(results: dict[str, Any], out: Path, console: Console) -> None:
    from coterie.report.plots import draw_results

    picture = draw_results(results, out / "learning-curves.png")
    if picture:
        console.print(f"learning curves: {picture}", markup=False, soft_wrap=True)
    console.print(f"results: {out / 'results.json'}; a page of them: coterie report {out}", markup=False, soft_wrap=True)
