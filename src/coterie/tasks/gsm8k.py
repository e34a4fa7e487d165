"""GSM8K word problems, split into facts: the data of team-talk, message-board, talk-to-solve and talk-methods.

Problems are shuffled as Hugging Face datasets shuffles them and then scanned in that order, so that ids and order equal the
published ones: `test-3` is the problem at position 3 of the shuffled test split, and the first that the split rule accepts.
Source: Cobbe et al., arXiv:2110.14168; `openai/gsm8k`, configuration `main`.
"""

from collections.abc import Sequence
from pathlib import Path

from coterie.tasks.base import TaskSet, first, shuffled
from coterie.tasks.published import Published
from coterie.tasks.split_facts import split_facts
from coterie.types import CoterieError, Seat, Task

HUB_NAME, HUB_CONFIG = "openai/gsm8k", "main"
GSM8K = Published("GSM8K", "train.jsonl and test.jsonl", "OpenAI")


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
        records = GSM8K.lines(Path(source)) if path is not None else GSM8K.download(HUB_NAME, HUB_CONFIG, split)
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
        raise CoterieError(f"{where}: a GSM8K problem needs the text fields question and answer; {GSM8K.use_theirs}")
    result = gold(answer)
    if result is None:
        raise CoterieError(f"{where}: the answer has nothing after '####'; {GSM8K.use_theirs}")
    if not seats:
        return Task(id=task_id, question=question, answer=result, ask=question)
    split = split_facts(question, seats)
    return split and Task(id=task_id, question=question, answer=result, ask=split.ask, private=split.facts)
