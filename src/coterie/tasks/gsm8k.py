"""GSM8K word problems, split into facts: the data of team-talk, message-board, talk-to-solve and talk-methods.

Problems are shuffled as Hugging Face datasets shuffles them and then scanned in that order, so that ids and order equal the
published ones: `test-3` is the problem at position 3 of the shuffled test split, and the first that the split rule accepts.
Source: Cobbe et al., arXiv:2110.14168; `openai/gsm8k`, configuration `main`.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from coterie.tasks.base import TaskSet, first, shuffled
from coterie.tasks.split_facts import split_facts
from coterie.types import CoterieError, Seat, Task

HUB_NAME, HUB_CONFIG = "openai/gsm8k", "main"


def load_gsm8k(path: str | None, train: int, held_out: int, seed: int = 0, seats: Sequence[Seat] = ("A", "B")) -> TaskSet:
    """`train` problems of the train split and `held_out` problems of the test split that the split rule accepts.

    Args:
        path: a folder with train.jsonl and test.jsonl (fields `question` and `answer`), or None for the `datasets` extra.
        seats: who gets the facts; with no seats nothing is split or rejected, and the ask is the whole question.

    Raises:
        CoterieError: a file, field or package is missing, the hub cannot be reached, or there are fewer problems than asked for.
    """
    chosen, skipped = {}, 0
    for split, wanted, key in (("train", train, "train"), ("test", held_out, "held_out")):
        source = str(Path(path) / f"{split}.jsonl") if path is not None else f"the {split} split of {HUB_NAME}"
        records = _read(Path(source)) if path is not None else _download(split)
        tasks: list[Task] = []
        for index, (where, record) in enumerate(shuffled(enumerate(records, start=1), seed)):
            if len(tasks) >= wanted:
                break
            task = _task(f"{split}-{index}", record, seats, f"{source}, line {where}")
            skipped += task is None
            tasks += [task] if task is not None else []
        chosen[key] = first(tasks, wanted, key, source)
    return TaskSet(train=chosen["train"], held_out=chosen["held_out"], skipped=skipped)


def gold(answer: str) -> str | None:
    """The gold answer: what follows the last `####`, without commas; None where there is none."""
    _, mark, tail = answer.rpartition("####")
    return tail.strip().replace(",", "") or None if mark else None


def _task(task_id: str, record: object, seats: Sequence[Seat], where: str) -> Task | None:
    question, answer = (record.get("question"), record.get("answer")) if isinstance(record, dict) else (None, None)
    if not isinstance(question, str) or not isinstance(answer, str):
        raise CoterieError(
            f"{where}: a GSM8K problem needs the text fields question and answer; use the files as OpenAI published them"
        )
    result = gold(answer)
    if result is None:
        raise CoterieError(f"{where}: the answer has nothing after '####'; use the files as OpenAI published them")
    if not seats:
        return Task(id=task_id, question=question, answer=result, ask=question)
    split = split_facts(question, seats)
    return split and Task(id=task_id, question=question, answer=result, ask=split.ask, private=split.facts)


def _read(file: Path) -> list[object]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise CoterieError(
            f"{file} cannot be read ({error.strerror}); set tasks.path to a folder that holds train.jsonl and test.jsonl of GSM8K, "
            "or leave it out to download them"
        ) from None
    except UnicodeDecodeError:
        raise CoterieError(f"{file} is not UTF-8 text; use the files as OpenAI published them") from None
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() and number == len(lines):
            break
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise CoterieError(
                f"{file}, line {number}: not a JSON object ({error}); use the files as OpenAI published them"
            ) from None
    return records


def _download(split: str) -> list[object]:
    try:
        from datasets import load_dataset  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise CoterieError(
            "GSM8K without tasks.path needs the package datasets; install it with pip install 'coterie[data]', or set tasks.path "
            "to a folder that holds train.jsonl and test.jsonl"
        ) from None
    try:
        return list(load_dataset(HUB_NAME, HUB_CONFIG, split=split))
    except Exception as error:  # the hub client raises many kinds, all of them "could not be had"
        raise CoterieError(
            f"{HUB_NAME} could not be downloaded ({type(error).__name__}: {' '.join(str(error).split())[:200]}); check the network "
            "or set tasks.path to a folder that holds train.jsonl and test.jsonl"
        ) from error
