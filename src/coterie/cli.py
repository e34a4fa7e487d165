"""The command line: `coterie run`, `explain`, `eval`, `crossplay`, `chat`, `recipes`, `settings`; `compare` and `plan` are in
`cli_stats`, `swarm` in `cli_swarm`. Mistakes in what was given exit with 2."""

import os
import signal
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import App, CycloptsError
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.text import Text

from coterie import __version__
from coterie.cli_checks import check
from coterie.cli_options import Flag, Plugins, Several
from coterie.cli_report import report
from coterie.cli_stats import compare, plan
from coterie.cli_swarm import swarm
from coterie.types import CoterieError

app = App(
    name="coterie",
    suppress_keyboard_interrupt=False,
    version=__version__,
    help="Train small groups of language models to work together, and say honestly whether it worked. Begin with "
    "`coterie recipes`; `coterie run RECIPE --smoke` tries one in about a minute.",
)
app.command(check)
app.command(compare)
app.command(plan)
app.command(swarm)
app.command(report)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)


def main() -> None:
    """The entry point of the `coterie` command."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _entry_points()
        code = app(exit_on_error=False, print_error=False, result_action="return_value")
    except CoterieError as error:
        errors.print(f"coterie: {error}", markup=False, soft_wrap=True)
        code = 2
    except CycloptsError as error:
        command = " ".join(["coterie", *(error.command_chain or ())])
        errors.print(f"coterie: {str(error).strip()} See `{command} --help`.", markup=False, soft_wrap=True)
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
    smoke: Annotated[bool, Flag] = False,
    workers: int | None = None,
    threads: int | None = None,
    track: Annotated[tuple[str, ...], Several] = (),
    plugin: Plugins = (),
) -> int:
    """Play every arm of a recipe over its seeds, score the trained copies on held-out tasks, and print a verdict.

    Finished runs in the output folder are kept and not played again.

    Parameters
    ----------
    recipe
        The name of a built-in recipe (`coterie recipes` lists them) or the path of a recipe.toml.
    profile
        Model, tasks and sizes that belong together; the recipe's default when absent.
    model
        "pocket" (built in), a folder in Hugging Face format, or a hub id.
    arm
        Only these arms; all when absent.
    seeds
        Training seeds, over which arms are compared in pairs; the profile's when absent.
    steps
        Training steps; the profile's when absent.
    set
        Any setting, as key=value; for example `--set train.optimizer.lr=1e-3`. `coterie settings` lists them.
    out
        The folder for runs and results; runs/RECIPE when absent.
    resume
        Go on with unfinished runs from their last checkpoints.
    smoke
        Only see that it plays: every arm for two steps on a few tasks with the built-in model, into a temporary folder.
    workers
        Runs played at once, each in its own process; one a GPU when absent, or without GPUs one a core.
    threads
        CPU threads of each worker; the cores are shared out when absent.
    track
        Also send metrics to tensorboard, trackio or wandb; none of them can stop a run.
    plugin
        Python files that register kinds of their own (docs/write-a-protocol.md).
    """
    from coterie import experiment as ex
    from coterie import running
    from coterie.recipe import load_recipe
    from coterie.report.terminal import print_results
    from coterie.track.trackers import opener

    running.check_counts(workers, threads)
    trackers = {name: opener(name) for name in track}
    file = load_recipe(recipe, plugin)
    if smoke:
        from coterie.smoke import plan_smoke, print_smoke, refuse

        refuse({"--profile": profile, "--model": model, "--seeds": seeds, "--steps": steps, "--resume": resume})
        plan = plan_smoke(file, arm, set, out)
    else:
        cuda = running.gpus() > 0
        plan = ex.plan(file, profile=profile, model=model, arms=arm, seeds=seeds, steps=steps, sets=set, out=out, cuda=cuda)
    todo = ex.prepare(plan, resume)
    running.announce(plan, todo, profile, console)
    failures = running.play(todo, workers, threads, console, trackers, errors)
    remedy = "their folders are kept" if smoke else "go on with --resume"
    code = running.report_failures(failures, len(todo), errors, remedy)
    if smoke:
        print_smoke(plan, console)
    elif any(job.folder.finished for job in plan.jobs):
        results = ex.write_results(plan.recipe, plan.out)
        console.print()
        print_results(results, console)
        running.draw(results, plan.out, console)
        running.report_checks(results, plan.out, console)
    return code


@app.command
def explain(recipe: str, /, *, profile: str | None = None, plugin: Plugins = ()) -> None:
    """Print a recipe's question, and each arm as its difference to the baseline.

    Parameters
    ----------
    recipe
        As in `coterie run`.
    profile
        The profile whose settings are compared; the recipe's default when absent.
    plugin
        As in `coterie run`.
    """
    from coterie.recipe import choose_profile, load_recipe
    from coterie.report.explain import print_explanation

    file = load_recipe(recipe, plugin)
    print_explanation(file, choose_profile(file, profile, None, False), console)


@app.command(name="eval")
def evaluate(
    run: Path,
    /,
    *,
    set: Annotated[tuple[str, ...], Several] = (),
    name: str = "again",
    plugin: Plugins = (),
) -> None:
    """Score a run's latest checkpoint again, for example with another sampler or another partner; the run is not changed.

    Parameters
    ----------
    run
        A run folder, for example runs/talk-to-solve/chat-seed17.
    set
        Settings to change, as key=value; for example `--set evaluate.sampling.temperature=0`, or
        `--set evaluate.partners='["runs/talk-to-solve/chat-seed18"]'`.
    name
        The result is written to RUN/evaluations/NAME.json.
    plugin
        Further plugins, for kinds that --set names; those that the run was played with are loaded anyway.
    """
    from coterie.again import evaluate_again

    result, path = evaluate_again(run, set, name, plugin)
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
def crossplay(folder: Path, /, *, arm: str, episodes: int = 1, tasks: int | None = None) -> None:
    """Score the copies of every finished seed of an arm, and the untrained base, each with each.

    Parameters
    ----------
    folder
        A folder of run folders, for example runs/talk-to-solve.
    arm
        The arm whose seeds play with each other.
    episodes
        Episodes of each task for every pair.
    tasks
        Only so many of the held-out tasks.
    """
    from coterie.crossplay import crossplay as play_all
    from coterie.report.heatmap import crossplay_means, crossplay_table

    for name, value in (("--episodes", episodes), ("--tasks", tasks)):
        if value is not None and value < 1:
            raise CoterieError(f"{name} {value}: give 1 or more")
    record = play_all(folder, arm, episodes, tasks)
    console.print(crossplay_table(record))
    console.print(crossplay_means(record))
    console.print(f"written to {folder / f'crossplay-{arm}.json'} and .png", markup=False, soft_wrap=True)


@app.command
def track(folder: Path, /, *, to: Annotated[tuple[str, ...], Several]) -> int:
    """Send the metrics and held-out scores of runs, finished or not, to trackers: what was not sent before.

    Parameters
    ----------
    folder
        A folder of run folders, for example runs/talk-to-solve.
    to
        tensorboard, trackio or wandb.
    """
    from coterie.runs import RunFolder
    from coterie.track.follow import Follower
    from coterie.track.trackers import opener

    trackers = {name: opener(name) for name in to}
    runs = [RunFolder(file.parent) for file in sorted(folder.glob("*/metrics.jsonl"))]
    if not runs:
        raise CoterieError(f"{folder}: holds no run with metrics; give a folder of run folders, for example runs/talk-to-solve")
    follower = Follower(runs, trackers, lambda line: errors.print(f"coterie: {line}", markup=False, soft_wrap=True))
    failed = follower.finish()
    console.print(f"sent the metrics of {len(runs) - failed} of {len(runs)} runs to {', '.join(trackers)}", markup=False)
    return 1 if failed else 0


@app.command
def settings(prefix: str = "", /, *, plugin: Plugins = ()) -> None:
    """List every setting that --set takes, with its default and meaning.

    Parameters
    ----------
    prefix
        Only the settings whose key begins so, for example train.optimizer; in a table of several kinds `credit[raft]`.
    plugin
        Also the settings of the kinds that these files register.
    """
    from coterie.config_errors import meant
    from coterie.kinds import load_plugins
    from coterie.report.settings import settings as every

    load_plugins(plugin)
    found = [setting for setting in every() if setting[0].startswith(prefix)]
    if not found:
        near = meant(prefix, dict.fromkeys(key.rpartition(".")[0] for key, _, _ in every()))
        raise CoterieError(f"no setting begins with {prefix}; `coterie settings` lists all{near}")
    for key, default, meaning in found:
        console.print(f"[bold]{escape(key)}[/bold] = {escape(default)}", soft_wrap=True)
        if meaning:
            console.print(f"    {' '.join(meaning.split())}", markup=False, soft_wrap=True)


@app.command
def recipes() -> None:
    """List the built-in recipes with their questions, arms and profiles."""
    from coterie.recipe import load_recipe, recipe_names

    for name in recipe_names():
        file = load_recipe(name).file
        lines = [file.question]
        lines += [f"arm {arm}{' (baseline)' if arm == file.baseline else ''}: {of.change}" for arm, of in file.arms.items()]
        lines += [f"profile {one}{' (default)' if one == file.profile else ''}: {of.about}" for one, of in file.profiles.items()]
        console.print(f"[bold]{name}[/bold]: {escape(file.title)}")
        for line in lines:
            console.print(Padding(Text(line), (0, 0, 0, 2), expand=False))
    console.print("`coterie explain RECIPE` shows what each arm changes; `coterie run RECIPE --smoke` tries it.", markup=False)


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
    plugin: Plugins = (),
) -> None:
    """Play one held-out task and print the conversation, with private numbers in colour.

    Parameters
    ----------
    recipe
        The recipe whose protocol and tasks are played, as in `coterie run`.
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
    plugin
        As in `coterie run`.
    """
    from coterie.again import converse
    from coterie.report.conversation import print_conversation
    from coterie.running import gpus

    played, episode = converse(
        recipe, run=run, arm=arm, index=task, seed=seed, profile=profile, model=model, sets=set, cuda=gpus() > 0, plugins=plugin
    )
    print_conversation(console, played, episode)


def _entry_points() -> None:
    """Kinds of installed packages; most have none, and then nothing is imported for it."""
    from importlib.metadata import entry_points

    if entry_points(group="coterie.kinds"):
        from coterie.kinds import load_entry_points

        load_entry_points()


if __name__ == "__main__":
    main()
