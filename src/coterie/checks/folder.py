"""Checks of the runs of a folder: run folders, finished or not, and committed records."""

from pathlib import Path
from typing import Any

from coterie.checks.base import Check, Evidence, Record
from coterie.checks.registry import check_run
from coterie.records import read_json, read_lines
from coterie.results import NEEDED, UNTRAINED, untrained_name
from coterie.types import CoterieError


def check_folder(folder: Path) -> dict[str, list[Check]]:
    """The checks of every trained run below `folder`, by its name; of one run when `folder` is that run's own.

    A file that is missing makes checks say "unknown". Raises CoterieError where there is no run, and for a file that is no record.
    """
    if (folder / "config.toml").is_file() or (folder / "result.json").is_file():
        where, only = folder.resolve().parent, folder.resolve().name
    else:
        where, only = folder, None
    records = _records(where)
    trained = {name: record for name, record in records.items() if not _is_untrained(name, record) and only in (None, name)}
    if not trained:
        raise CoterieError(
            f"{folder}: holds no trained run; give a folder of run folders or records, or one run of an arm and seed"
        )
    siblings = [record for name, record in records.items() if record and not _is_untrained(name, record)]
    found = {}
    for name, record in trained.items():
        before = untrained_name(record.get("arm") or name.rpartition("-seed")[0])
        found[name] = check_run(
            Evidence(
                record,
                records.get(before) or None,
                read_lines(where / name / "metrics.jsonl"),
                conversations_of(where / name),
                conversations_of(where / before),
                siblings,
            )
        )
    return found


def conversations_of(run: Path) -> list[Record]:
    """The held-out conversations of a run folder; lines that are not as `scoring` writes them are passed over."""
    return [one for one in read_lines(run / "evaluation.jsonl") if _is_conversation(one)]


def _is_conversation(one: Any) -> bool:
    messages = one.get("messages") if isinstance(one, dict) else None
    return isinstance(messages, list) and all(
        isinstance(m, dict)
        and m.keys() >= {"turn", "seat", "final"}
        and isinstance(m.get("text"), str)
        and isinstance(m.get("heard"), list)
        for m in messages
    )


def _records(folder: Path) -> dict[str, Record]:
    """Records by the name of their run; an empty one for a run that is not finished."""
    files = {path.parent.name: path for pattern in ("*/config.toml", "*/result.json") for path in sorted(folder.glob(pattern))}
    committed = [*folder.glob("*-seed*.json"), *folder.glob(f"*-{UNTRAINED}.json")]
    files = {path.stem: path for path in committed} | files
    return {name: _record(path) if path.suffix == ".json" else {} for name, path in sorted(files.items())}


def _record(path: Path) -> dict[str, Any]:
    record = read_json(path)
    if not isinstance(record, dict) or not record.keys() >= NEEDED:
        raise CoterieError(f"{path}: not the record of a run; it needs {', '.join(sorted(NEEDED))}")
    return record


def _is_untrained(name: str, record: Record) -> bool:
    return not record["steps"] if record else name.endswith(f"-{UNTRAINED}")
