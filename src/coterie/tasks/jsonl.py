"""A user's own tasks, one JSON object a line.

    {"question": "...", "answer": "18", "facts": {"A": ["..."], "B": ["..."]}, "ask": "...", "id": "mine-1"}

`facts` and `ask` come together; without them the published split rule deals out the sentences of the question. `id` is optional.
Whatever is wrong with a line is a `CoterieError` that begins with its file and line.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from coterie.tasks.base import TaskSet, first, shuffled
from coterie.tasks.overlap import normalise
from coterie.tasks.split_facts import split_or_reason
from coterie.types import CoterieError, Seat, Task

KEYS = ("question", "answer", "facts", "ask", "id")
_BOM = b"\xef\xbb\xbf"
_log = logging.getLogger(__name__)


class _Number(str):
    """A number of the file as it is written there, so that 18.50 stays 18.50."""


class _LineError(Exception):
    """What is wrong with one line; the file and line are put before it by the caller."""


def load_jsonl(
    path_train: str,
    path_held_out: str | None,
    train: int | None,
    held_out: int | None,
    seed: int = 0,
    seats: Sequence[Seat] = ("A", "B"),
    on_reject: Literal["error", "skip"] = "error",
) -> TaskSet:
    """Reads tasks from one file or two.

    From two files the first `train` and `held_out` tasks are taken after a shuffle with `seed`. From one file, the `held_out` tasks
    are those whose normalised question has the smallest SHA-256: the same ones whatever the seed and the order of the lines, and
    never a question that is also in train. None takes all there are; of a single file, a tenth (at least one) is held out then.

    Args:
        seats: the seats of the protocol; each task must hold facts for exactly these. With no seats nothing is split or checked.
        on_reject: what to do with a line that has no facts and that the split rule rejects. Skipped ones are counted in the result.

    Raises:
        CoterieError: names the file and the line, or the setting that asks for more tasks than there are.
    """
    seen: dict[str, str] = {}
    if path_held_out is None:
        tasks, skipped = _read(Path(path_train), "task", seats, on_reject, seen)
        if held_out is None:
            held_out = max(1, len(tasks) // 10)
        pool, held = _part(tasks, held_out)
        chosen = first(held, held_out, "held_out", path_train)
        return TaskSet(first(shuffled(pool, seed), train, "train", f"{path_train} without its held-out tasks"), chosen, skipped)
    pool, skipped_train = _read(Path(path_train), "train", seats, on_reject, seen)
    held, skipped_held = _read(Path(path_held_out), "held-out", seats, on_reject, seen)
    return TaskSet(
        train=first(shuffled(pool, seed), train, "train", path_train),
        held_out=first(shuffled(held, seed), held_out, "held_out", path_held_out),
        skipped=skipped_train + skipped_held,
    )


def _part(tasks: list[Task], held_out: int) -> tuple[list[Task], list[Task]]:
    """(train, held out): whole groups of equal questions go to one side, in the order of their hash."""
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(normalise(task.question), []).append(task)
    train: list[Task] = []
    held: list[Task] = []
    for key in sorted(groups, key=lambda key: hashlib.sha256(key.encode()).digest()):
        (held if len(held) < held_out else train).extend(groups[key])
    return train, held


def _read(file: Path, prefix: str, seats: Sequence[Seat], on_reject: str, seen: dict[str, str]) -> tuple[list[Task], int]:
    tasks: list[Task] = []
    skipped = 0
    for number, line in _lines(file):
        where = f"{file}, line {number}"
        try:
            task = _task(_decode(line), f"{prefix}-{number}", seats, on_reject)
            if task is not None and task.id in seen:
                raise _LineError(f"the id {task.id!r} is taken by {seen[task.id]}; give each task its own")
        except _LineError as error:
            raise CoterieError(f"{where}: {error}") from None
        if task is None:
            skipped += 1
            continue
        seen[task.id] = where
        tasks.append(task)
    if skipped:
        _log.warning("%s: skipped %d of %d tasks, which the split rule rejects", file, skipped, skipped + len(tasks))
    return tasks, skipped


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise CoterieError(
            f"{file} cannot be read ({error.strerror}); give the path of a file with one JSON object a line"
        ) from None
    for number, line in enumerate(data.removeprefix(_BOM).split(b"\n"), start=1):
        if line.strip():
            yield number, line


def _decode(line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _LineError(f"byte {error.start + 1} is not UTF-8; save the file as UTF-8") from None
    try:
        record = json.loads(text, object_pairs_hook=_object, parse_int=_Number, parse_float=_Number)
        json.dumps(record, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise _LineError(f"not valid JSON ({error.msg}, column {error.colno}); write one JSON object a line") from None
    except UnicodeEncodeError:
        raise _LineError("holds half of a surrogate pair (\\ud800 to \\udfff); write the whole character") from None
    except RecursionError:
        raise _LineError("is nested too deeply; write one flat JSON object a line") from None
    if not isinstance(record, dict):
        raise _LineError(f'is {_kind(record)}, not a JSON object; write {{"question": …, "answer": …}}')
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _LineError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice in one object; remove one")
    return record


def _task(record: dict[str, Any], default_id: str, seats: Sequence[Seat], on_reject: str) -> Task | None:
    unknown = [key for key in record if key not in KEYS]
    if unknown:
        raise _LineError(f"unknown key {unknown[0]!r}; the keys are {', '.join(KEYS)}")
    question = _text(record, "question")
    answer = _text(record, "answer", number=True)
    task_id = _text(record, "id", number=True) if "id" in record else default_id
    if ("facts" in record) != ("ask" in record):
        given, missing = ("facts", "ask") if "facts" in record else ("ask", "facts")
        raise _LineError(f"has the key {given!r} but no {missing!r}; give both, or neither to have the question split by rule")
    if "facts" in record:
        return Task(id=task_id, question=question, answer=answer, ask=_text(record, "ask"), private=_facts(record["facts"], seats))
    if not seats:
        return Task(id=task_id, question=question, answer=answer, ask=question)
    split = split_or_reason(question, seats)
    if isinstance(split, str):
        if on_reject == "skip":
            return None
        raise _LineError(f'the question {split}; give facts and ask, or set tasks.on_reject to "skip"')
    return Task(id=task_id, question=question, answer=answer, ask=split.ask, private=split.facts)


def _facts(facts: object, seats: Sequence[Seat]) -> dict[Seat, tuple[str, ...]]:
    if not isinstance(facts, dict):
        raise _LineError(f'\'facts\' is {_kind(facts)}; write an object from seat to a list of texts, {{"A": ["…"], "B": ["…"]}}')
    for seat, told in facts.items():
        if not isinstance(told, list) or not all(type(fact) is str and fact.strip() for fact in told):
            raise _LineError(f"the facts of seat {seat} must be a list of texts that are not empty")
        if not told:
            raise _LineError(f"the facts of seat {seat} are an empty list; give that seat one fact at least")
    if seats:
        for seat in seats:
            if seat not in facts:
                raise _LineError(f"no facts for seat {seat}; the protocol's seats are {', '.join(seats)}, and each needs facts")
        for seat in facts:
            if seat not in seats:
                raise _LineError(
                    f"facts for seat {seat}, but the protocol's seats are {', '.join(seats)}; nobody would be told them"
                )
    return {seat: tuple(told) for seat, told in facts.items()}


def _text(record: dict[str, Any], key: str, number: bool = False) -> str:
    if key not in record:
        raise _LineError(f"the key {key!r} is missing; each task needs question and answer")
    value = record[key]
    if type(value) is not str and not (number and type(value) is _Number):
        raise _LineError(f"{key!r} is {_kind(value)}; write {'a text or a number' if number else 'a text'}")
    if not value.strip():
        raise _LineError(f"{key!r} is empty; give a text")
    return str(value)


def _kind(value: object) -> str:
    kinds = {
        _Number: "a number",
        str: "a text",
        bool: "true or false",
        list: "a list",
        dict: "an object",
        float: "not a finite number",
    }
    return kinds.get(type(value), "null")
