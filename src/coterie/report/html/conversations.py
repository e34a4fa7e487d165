"""Conversations for the browser of a report: held-out ones before and after training, private numbers marked where they are said.

What models and task files say is data: control and formatting characters are written out here, and the page only ever shows the
result as text.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coterie.measures import highlights, others_numbers, private_numbers
from coterie.records import read_lines
from coterie.report.results import number
from coterie.runs import RunFolder
from coterie.types import CoterieError, Task

Part = list[str]
"""A stretch of text, and what it is: "", "sent" (a number that only its seat knew) or "used" (one that only others knew)."""

KINDS = {"own": "sent", "others": "used"}
BEFORE, AFTER = "before training", "after training"


@dataclass(slots=True)
class Conversations:
    """Ready for JSON. `tasks` are what `items` point to by number; `notes` say what is missing and why."""

    items: list[dict[str, Any]] = field(default_factory=list)
    tasks: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def visible(text: str) -> str:
    """`text` with control characters as their symbols (␛), and formatting characters, lone surrogates and changes of writing
    direction as escapes; line ends and tabs stay."""
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") else _symbol(c) for c in text)


def _symbol(c: str) -> str:
    if ord(c) < 0x20:
        return chr(0x2400 + ord(c))
    return "\u2421" if c == "\x7f" else c.encode("unicode_escape").decode()


def parts(text: str, own: frozenset[str] = frozenset(), others: frozenset[str] = frozenset()) -> list[Part]:
    """`text` in stretches, those that hold a private number with their kind; put together they are `visible(text)`."""
    found: list[Part] = []
    at = 0
    for start, end, kind in highlights(text, own, others):
        found += [[visible(text[at:start]), ""]] if start > at else []
        found.append([visible(text[start:end]), KINDS[kind]])
        at = end
    return [*found, [visible(text[at:]), ""]] if at < len(text) else found


def outcome(reward: float | None) -> str:
    return "not graded" if reward is None else "right" if reward >= 1 else "wrong" if reward <= 0 else "partly right"


def read_conversations(folder: Path) -> Conversations:
    """Of every run folder: its sampled held-out conversations, or, while it goes on, those of its last training step that has any.
    Committed records hold none."""
    found = Conversations()
    known: dict[str, Mapping[str, Task]] = {}
    numbers: dict[str, int] = {}
    for file in sorted(folder.glob("*/config.toml")):
        run = RunFolder(file.parent)
        try:
            config = run.config()
        except CoterieError as error:
            found.notes.append(f"{run.name} is left out: {error}")
            continue
        held_out = read_lines(run.path / "evaluation.jsonl")
        stage = AFTER if config.train.steps else BEFORE
        if not run.finished:
            samples = read_lines(run.episodes_file)
            held_out = [one for one in samples if one["step"] == samples[-1]["step"]]
            stage = f"step {samples[-1]['step']} of training" if samples else stage
        if not held_out:
            continue
        key = f"{config.tasks!r} {config.protocol!r}"
        if key not in known:
            known[key] = _tasks(config, run.name, found.notes)
        about = {"arm": config.arm, "seed": config.seed if config.train.steps else None, "stage": stage}
        odd = 0
        for one in held_out:
            try:
                task = known[key].get(one["task_id"]) or _given(one)
                item = {**about, **_item(one, task)}
            except (KeyError, TypeError, AttributeError):  # not as `scoring` writes it
                odd += 1
                continue
            place = numbers.setdefault(f"{key} {one['task_id']}", len(found.tasks))
            if place == len(found.tasks):
                found.tasks.append(_task(one["task_id"], task))
            found.items.append({**item, "task": place})
        if odd:
            found.notes.append(f"{odd} conversations of {run.name} are left out: their records are not as coterie writes them.")
    found.items.sort(key=lambda one: (one["task"], one["arm"], one["stage"] != BEFORE, one["seed"] or 0))
    return found


def _tasks(config: Any, name: str, notes: list[str]) -> Mapping[str, Task]:
    """The run's tasks by id; none, and a note, where they cannot be loaded any more."""
    from coterie import builtin as _  # noqa: F401 (registers the kinds)
    from coterie.kinds import About, make

    try:
        protocol = make("protocol", config.protocol, About(config))
        tasks = make("tasks", config.tasks, About(config, protocol.fact_seats))
    except (CoterieError, OSError, ImportError) as error:
        notes.append(f"The tasks of {name} could not be loaded, so what its records do not say of them is not shown: {error}")
        return {}
    return {task.id: task for task in (*tasks.train, *tasks.held_out)}


def _given(record: Mapping[str, Any]) -> Task | None:
    """The task as far as the conversation's own record tells it: what its seats were given to read."""
    if "facts" not in record:
        return None
    private = {seat: tuple(facts) for seat, facts in record["facts"].items()}
    return Task(record["task_id"], record.get("question", ""), "", record.get("ask", ""), private)


def _task(id: str, task: Task | None) -> dict[str, Any]:
    if task is None:
        return {"id": visible(id), "ask": "", "answer": "", "facts": []}
    facts = [[visible(seat), parts(" ".join(said), private_numbers(task, seat))] for seat, said in task.private.items()]
    return {"id": visible(id), "ask": visible(task.ask), "answer": visible(task.answer), "facts": facts}


def _item(record: Mapping[str, Any], task: Task | None) -> dict[str, Any]:
    """`record` is `evaluate.episode_record`."""
    reward, scores = number(record.get("reward")), (record.get("scores") or {}).items()
    errors = [f"{seat} could not be graded: {error}" for seat, error in (record.get("errors") or {}).items()]
    return {
        "outcome": outcome(reward),
        "reward": reward,
        "episode": record.get("episode", 0),
        "node": visible(str(record.get("node", ""))),
        "scores": [[visible(seat), number(score)] for seat, score in scores],
        "errors": [visible(error) for error in errors],
        "messages": [_message(message, task) for message in record["messages"]],
    }


def _message(message: Mapping[str, Any], task: Task | None) -> dict[str, Any]:
    seat, text = str(message["seat"]), str(message["text"])
    own, others = (private_numbers(task, seat), others_numbers(task, seat)) if task else (frozenset(), frozenset())
    return {
        "seat": visible(seat),
        "player": visible(str(message.get("player", ""))),
        "final": bool(message.get("final")),
        "cut": message.get("stop") == "length",
        "tokens": number(message.get("tokens")),
        "parts": parts(text, own, others),
    }
