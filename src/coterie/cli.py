"""The command line: `coterie run`, `eval`, `compare`, `chat`, `recipes`, `settings`. Mistakes in what was given exit with 2."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.markup import escape

from coterie import __version__
from coterie.types import CoterieError

app = App(
    name="coterie",
    suppress_keyboard_interrupt=False,
    version=__version__,
    help="Train small groups of language models to work together, and say honestly whether it worked.",
)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

Several = Parameter(consume_multiple=True, negative=(), show_default=False)
Flag = Parameter(negative=(), show_default=False)


def main() -> None:
    """The entry point of the `coterie` command."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = app(exit_on_error=False, print_error=False, result_action="return_value")
    except CoterieError as error:
        errors.print(f"coterie: {error}", markup=False, soft_wrap=True)
        code = 2
    except CycloptsError as error:
        errors.print(
            f"coterie: {str(error).strip()} `coterie --help` lists the commands and options.", markup=False, soft_wrap=True
        )
        code = 2
    except KeyboardInterrupt:
        errors.print("coterie: stopped; go on with --resume, every finished step is kept.")
        code = 130
    sys.exit(code or 0)


@app.command
def run(
    recipe: str,
    /,
    *,
    profile: str | None = None,
    model: str | None = None,
    arm: Annotated[tuple[str, ...], Several] = (),
    seeds: Annotated[tuple[int, ...], Several] = (),
    steps: int | None = None,
    set: Annotated[tuple[str, ...], Several] = (),
    out: Path | None = None,
    resume: Annotated[bool, Flag] = False,
    workers: int | None = None,
    threads: int | None = None,
) -> int:
    """Play every arm of a recipe over its seeds, score the trained copies on held-out tasks, and print a verdict.

    Finished runs in the output folder are kept and not played again.

    Parameters
    ----------
    recipe
        The name of a built-in recipe (see `coterie recipes`) or the path of a recipe.toml.
    profile
        Model, tasks and sizes that belong together; the recipe's default when absent.
    model
        "pocket" (built in), a folder in Hugging Face format, or a hub id.
    arm
        Only these arms.
    seeds
        Training seeds; a comparison is paired over them.
    steps
        Training steps.
    set
        Any setting, as key=value; for example `--set train.optimizer.lr=1e-3`.
    out
        The folder for runs and results; runs/RECIPE when absent.
    resume
        Go on with unfinished runs from their last checkpoints.
    workers
        Runs played at once, each in its own process.
    threads
        Threads of each worker.
    """
    from coterie import experiment as ex
    from coterie.launch.local import default_workers, gpu_sets, play_runs
    from coterie.recipe import load_recipe
    from coterie.report.progress import Watcher
    from coterie.report.terminal import print_results

    count = _gpus()
    plan = ex.plan(
        load_recipe(recipe), profile=profile, model=model, arms=arm, seeds=seeds, steps=steps, sets=set, out=out, cuda=count > 0
    )
    for name, value in (("--workers", workers), ("--threads", threads)):
        if value is not None and value < 1:
            raise CoterieError(f"{name} {value}: give 1 or more")
    todo = ex.prepare(plan, resume)
    _announce(plan, todo, profile)
    failures = []
    if todo:
        about = todo[0].config
        each = (about.engine.tensor_parallel or 1) if about.engine.kind == "vllm" else 1
        gpus = [] if about.model.device == "cpu" else gpu_sets(count, os.environ.get("CUDA_VISIBLE_DEVICES"), each)
        crew = workers or default_workers(len(todo), len(gpus))
        share = threads or (max(1, (os.cpu_count() or 1) // crew) if gpus else 1)
        with Watcher(console, [(job.folder, job.config.train.steps) for job in todo]) as watch:
            failures = play_runs([job.folder for job in todo], crew, share, watch, gpus)
    for failure in failures:
        errors.print(f"coterie: {failure.folder.name}: {failure.error}", markup=False, soft_wrap=True)
    if failures:
        errors.print(f"coterie: {len(failures)} of {len(todo)} runs did not finish; go on with --resume.")
    if any(job.folder.finished for job in plan.jobs):
        results = ex.write_results(plan.recipe, plan.out)
        console.print()
        print_results(results, console)
        _draw(results, plan.out)
    return (2 if all(f.kind == "user" for f in failures) else 1) if failures else 0


@app.command(name="eval")
def evaluate(
    run: Path,
    /,
    *,
    set: Annotated[tuple[str, ...], Several] = (),
    name: str = "again",
) -> None:
    """Score a run's latest checkpoint again, for example with another sampler; the run itself is not changed.

    Parameters
    ----------
    run
        A run folder, for example runs/talk-to-solve/chat-seed17.
    set
        Settings to change, as key=value; for example `--set evaluate.sampling.temperature=0`.
    name
        The result is written to RUN/evaluations/NAME.json.
    """
    from coterie.again import evaluate_again

    result, path = evaluate_again(run, set, name)
    score = "no episode could be graded" if result["score"] is None else f"{result['score']:.3f}"
    console.print(
        f"score {score} on {result['held_out']} held-out tasks ({result['episodes']} episodes, step {result['steps']})",
        markup=False,
    )
    for cast, of in result["cross_play"].items():
        shown = "no episode could be graded" if of["score"] is None else f"{of['score']:.3f}"
        console.print(f"  {cast}: {shown}", markup=False)
    console.print(f"written to {path}", markup=False, soft_wrap=True)


@app.command
def compare(folder: Path, /, *, recipe: str | None = None, json: Path | None = None, records: Path | None = None) -> None:
    """Compare the arms of finished runs over their seeds.

    Parameters
    ----------
    folder
        A folder of run folders (runs/talk-to-solve) or of committed records (recipes/talk-to-solve/results/MODEL).
    recipe
        The recipe that says which arm is the baseline; by default the one that the records name.
    json
        Also write the summary to this file.
    records
        Also copy the record of each finished run into this folder, as ARM-seedK.json, to be kept and compared later.
    """
    from coterie.experiment import summarise
    from coterie.recipe import load_recipe
    from coterie.records import write_json
    from coterie.report.terminal import print_results
    from coterie.results import keep_records, read_records

    trained, untrained = read_records(folder)
    named = recipe or next(iter([*trained, *untrained.values()]))["recipe"]
    try:
        known = load_recipe(named)
    except CoterieError as error:
        if recipe:
            raise
        raise CoterieError(
            f"the runs in {folder} are of recipe {named}, which is not built in; give its file with --recipe"
        ) from error
    results = summarise(known, folder)
    print_results(results, console)
    if json:
        write_json(json, results)
    if records:
        kept = keep_records(trained, untrained, records)
        console.print(f"{kept} records are in {records}", markup=False, soft_wrap=True)


@app.command
def settings(prefix: str = "", /) -> None:
    """List every setting that --set takes, with its default and meaning.

    Parameters
    ----------
    prefix
        Only the settings whose key begins so, for example train.optimizer.
    """
    from coterie.report.settings import settings as every

    for key, default, meaning in every():
        if key.startswith(prefix):
            console.print(f"[bold]{escape(key)}[/bold] = {escape(default)}", soft_wrap=True)
            if meaning:
                console.print(f"    {' '.join(meaning.split())}", markup=False, soft_wrap=True)


@app.command
def recipes() -> None:
    """List the built-in recipes with their questions, arms and profiles."""
    from coterie.recipe import load_recipe, recipe_names

    for name in recipe_names():
        file = load_recipe(name).file
        console.print(f"[bold]{name}[/bold]: {file.title}")
        console.print(f"  {file.question}", markup=False)
        for arm, of in file.arms.items():
            console.print(f"  arm {arm}{' (baseline)' if arm == file.baseline else ''}: {of.change}", markup=False)
        for profile, of in file.profiles.items():
            console.print(f"  profile {profile}{' (default)' if profile == file.profile else ''}: {of.about}", markup=False)


@app.command
def chat(
    recipe: str,
    /,
    *,
    run: Path | None = None,
    arm: str | None = None,
    task: int = 0,
    seed: int = 0,
    profile: str | None = None,
    model: str | None = None,
    set: Annotated[tuple[str, ...], Several] = (),
) -> None:
    """Play one held-out task and print the conversation, with private numbers in colour.

    Parameters
    ----------
    recipe
        The recipe whose protocol and tasks are played.
    run
        A run folder: its trained copies play. Without it, the untrained model does.
    arm
        The arm whose protocol is played; by default the run's, or the last of the recipe.
    task
        Which held-out task, counted from 0.
    seed
        The seed of the sampling noise: another seed, another conversation.
    profile
        As in `coterie run`.
    model
        As in `coterie run`.
    set
        As in `coterie run`.
    """
    from coterie.again import converse
    from coterie.report.conversation import print_conversation

    played, episode = converse(
        recipe, run=run, arm=arm, index=task, seed=seed, profile=profile, model=model, sets=set, cuda=_gpus() > 0
    )
    print_conversation(console, played, episode)


def _gpus() -> int:
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _announce(plan, todo, profile: str | None) -> None:
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


def _draw(results, out: Path) -> None:
    from coterie.report.plots import draw_results

    picture = draw_results(results, out / "learning-curves.png")
    if picture:
        console.print(f"learning curves: {picture}", markup=False, soft_wrap=True)
    console.print(f"results: {out / 'results.json'}", markup=False, soft_wrap=True)


if __name__ == "__main__":
    main()
