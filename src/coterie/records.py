"""Files that survive: atomic writes, appended lines that may be torn, and one place that turns an OSError into a sentence."""

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.types import CoterieError


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Say what to do when the disk is full or the folder may not be written."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise CoterieError(
                f"{path}: the disk has no room left; free some and go on with --resume (nothing written so far is lost)"
            ) from error
        raise CoterieError(f"{path}: cannot be written ({error.strerror}); choose another folder with --out") from error


def write_text(path: Path, text: str) -> None:
    """Write the whole file or nothing: a temporary file beside it, flushed to disk, then renamed over it."""
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(temporary, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CoterieError(f"{path}: not valid JSON ({error})") from None
    except OSError as error:
        raise CoterieError(f"{path}: cannot be read ({error.strerror})") from None


def append_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Append records, one JSON object a line."""
    text = "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    if text:
        with disk_errors(path), open(path, "a", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # a checkpoint that follows must never be newer than the lines before it


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole records of a file of lines; a last line torn by a kill is left out."""
    records = []
    if path.is_file():
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):  # not splitlines: text may hold U+2028
            if not line:
                continue
            try:
                records.append(json.loads(line))
            except json.JSONDecodeError:
                break
    return records


def last_line(path: Path, most: int = 65536) -> dict[str, Any] | None:
    """The last whole record of a file of lines, read from the file's end; None when there is none."""
    if not path.is_file():
        return None
    with open(path, "rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - most))
        lines = file.read().decode(errors="replace").split("\n")
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict):
            return record
    return None


def keep_until(path: Path, step: int) -> None:
    """Drop the records of steps after `step`, which a resumed run will play again."""
    if path.is_file():
        kept = [record for record in read_lines(path) if record["step"] <= step]
        write_text(path, "".join(json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in kept))
