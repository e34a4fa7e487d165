"""Everything that a report is made of, read from a folder of runs or of committed records."""

import hashlib
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.checks import as_json, check_folder, over_chance
from coterie.experiment import summarise
from coterie.recipe import Recipe, load_recipe
from coterie.records import read_json, read_lines
from coterie.report.html.conversations import Conversations, read_conversations
from coterie.results import read_records, run_name
from coterie.types import CoterieError

WATCHED = (
    "*/result.json",
    "*/run.json",
    "*/metrics.jsonl",
    "*/evaluation.jsonl",
    "*-seed*.json",
    "*-untrained.json",
    "crossplay-*.json",
)
"""What a change of makes the page old."""


@dataclass(frozen=True, slots=True)
class GoingOn:
    """A run that has not finished: its steps so far."""

    arm: str
    seed: int
    steps: int
    status: str
    curve: list[tuple[int, float | None]]


@dataclass(frozen=True, slots=True)
class Source:
    """`results` is `results.gather`'s summary; with no finished run it has arms without seeds and no comparison."""

    results: dict[str, Any]
    cross_play: list[dict[str, Any]] = field(default_factory=list)
    going_on: list[GoingOn] = field(default_factory=list)
    conversations: Conversations = field(default_factory=Conversations)
    off: str | None = None
    """The arm whose messages are not delivered, where there is one: what measures of talk are held against."""


def read(folder: Path, recipe: str | None = None, plugins: Sequence[Path] = ()) -> Source:
    """Raises CoterieError where the folder holds neither a finished run nor one that goes on, or its recipe is not known."""
    going_on = _going_on(folder)
    try:
        trained, untrained = read_records(folder)
        named = next(iter([*trained, *untrained.values()]))["recipe"]
    except CoterieError:
        if not going_on:
            raise
        trained, untrained, named = [], {}, _config(_unfinished(folder)[0])["recipe"]
    known = _recipe(folder, recipe, named, plugins)
    results = summarise(known, folder) if trained or untrained else _empty(known, folder)
    if trained:
        finished = {run_name(record["arm"], record["seed"]) for record in trained}
        found = {run: checks for run, checks in check_folder(folder).items() if run in finished}
        results |= {"over_chance": over_chance(trained), "checks": as_json(found)}
    for run in going_on:  # an arm none of whose runs has finished is an arm all the same
        about = known.file.arms.get(run.arm)
        results["arms"].setdefault(run.arm, {"change": about.change if about else "", "seeds": {}})
    cross = [read_json(path) for path in sorted(folder.glob("crossplay-*.json"))]
    whole = [one for one in cross if isinstance(one, dict) and one.keys() >= {"arm", "players", "scores", "rows", "columns"}]
    silent = [r["arm"] for r in trained if (r["conditions"].get("protocol") or {}).get("deliver") is False]
    return Source(results, whole, going_on, read_conversations(folder), next(iter(silent), None))


def stamp(folder: Path) -> str:
    """Changes when something that the page is made of does."""
    files = sorted(path for pattern in WATCHED for path in folder.glob(pattern))
    seen = [(path.name, path.parent.name, found.st_mtime_ns, found.st_size) for path in files if (found := _stat(path))]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]


def _stat(path: Path) -> Any:
    try:
        return path.stat()
    except OSError:  # replaced or removed since it was listed
        return None


def _recipe(folder: Path, given: str | None, named: str, plugins: Sequence[Path]) -> Recipe:
    try:
        return load_recipe(given or named, plugins)
    except CoterieError as error:
        if given:
            raise
        raise CoterieError(
            f"the runs in {folder} are of recipe {named}, which is not built in; give its file with --recipe"
        ) from error


def _empty(recipe: Recipe, folder: Path) -> dict[str, Any]:
    """The summary of runs none of which has finished."""
    file, config = recipe.file, _config(_unfinished(folder)[0])
    return {
        "recipe": recipe.name,
        "title": file.title,
        "question": file.question,
        "model": Path(config["model"]["path"]).name,
        "profile": config["profile"],
        "metric": "team reward",
        "baseline": file.baseline,
        "arms": {name: {"change": arm.change, "seeds": {}} for name, arm in file.arms.items()},
        "comparisons": [],
    }


def _unfinished(folder: Path) -> list[Path]:
    return sorted(file.parent for file in folder.glob("*/config.toml") if not (file.parent / "result.json").is_file())


def _config(run: Path) -> dict[str, Any]:
    """A run's configuration as it is written, not checked: a report only reads a few names from it."""
    try:
        return tomllib.loads((run / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CoterieError(f"{run / 'config.toml'}: cannot be read ({error})") from None


def _going_on(folder: Path) -> list[GoingOn]:
    found = []
    for run in _unfinished(folder):
        config = _config(run)
        steps = config["train"]["steps"]
        if not steps:
            continue
        state = read_json(run / "run.json") if (run / "run.json").is_file() else {}
        curve = [(m["step"], m["reward"]) for m in read_lines(run / "metrics.jsonl")]
        found.append(GoingOn(config["arm"], config["seed"], steps, str(state.get("status", "waiting")), curve))
    return found
