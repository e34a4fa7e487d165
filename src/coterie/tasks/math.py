r"""MATH competition problems, with MATH-500 held out: the data of board-writers. Every copy is given the whole problem.

Train: problems of the train split of the chosen levels, shuffled as Hugging Face datasets shuffles them; the gold answer is what
stands in the last `\boxed{...}` of the solution. Held out: MATH-500 of those levels, shuffled with the same data seed; the gold
answer is its field `answer`. Levels are filtered first and shuffled then, so ids count within the levels: `train-7` is at position
7 of the shuffled train problems. MATH-500 keeps its own names, `math500-test/algebra/1.json`.
Sources: Hendrycks et al., arXiv:2103.03874 (MATH); Lightman et al., arXiv:2305.20050 (the 500 problems);
`DigitalLearningGmbH/MATH-lighteval` and `HuggingFaceH4/MATH-500`.

A problem of MATH-500 is never trained on. Train problems that ask the same (after `overlap.normalise`) as any of the 500, held out
in this run or not, are skipped and counted, as are train problems without a box. So the train tasks do not depend on how many are
held out.

**Only MATH-500 at hand.** A folder with math500.json and no train file gives both sets from the 500: after the shuffle the first
`held_out` problems of the chosen levels are held out, the same ones as above, and the train tasks are the first `train` of those
that come after them. Ids stay `math500-…`. This is for trials: the published experiment trains on other problems.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coterie.grading.base import boxed
from coterie.tasks.base import TaskSet, first, shuffled
from coterie.tasks.overlap import normalise
from coterie.tasks.published import Published
from coterie.types import CoterieError, Task

TRAIN_HUB, TEST_HUB = "DigitalLearningGmbH/MATH-lighteval", "HuggingFaceH4/MATH-500"
MATH = Published("MATH", "train.jsonl and test.jsonl (or math500.json)", "their authors")
_LEVEL = re.compile(r"(?:Level )?([1-5?])")


@dataclass(frozen=True, slots=True)
class _Problem:
    id: str
    question: str
    answer: str | None


def load_math(path: str | None, train: int, held_out: int, seed: int = 0, levels: Sequence[int] = (3, 4, 5)) -> TaskSet:
    """`train` problems of the train split and `held_out` problems of MATH-500, of `levels`.

    Args:
        path: a folder with train.jsonl (fields `problem`, `solution`, `level`) and test.jsonl (`problem`, `answer`, `level`,
            `unique_id`) or math500.json (a list of the same), or None for the `datasets` extra. A level is 3 or "Level 3".

    Raises:
        CoterieError: a file, field or package is missing, the hub cannot be reached, or there are fewer problems than asked for.
    """
    if path is None:
        train_source, test_source = f"the train split of {TRAIN_HUB}", f"the test split of {TEST_HUB}"
        train_records: list[object] | None = MATH.download(TRAIN_HUB, None, "train")
        test_records: list[object] = MATH.download(TEST_HUB, None, "test")
    else:
        folder = Path(path)
        whole, lines, train_file = folder / "math500.json", folder / "test.jsonl", folder / "train.jsonl"
        alone = whole.is_file() and not lines.is_file()
        test_source, train_source = str(whole if alone else lines), str(train_file)
        train_records = None if alone and not train_file.is_file() else MATH.lines(train_file)
        test_records = MATH.document(whole) if alone else MATH.lines(lines)
    test = [_held_out(record, where) for record, where in _of(levels, test_records, test_source, seed)]
    held = first([_task(one) for one in test], held_out, "held_out", test_source)
    if train_records is None:
        rest = [_task(one) for one in test[held_out:]]
        return TaskSet(first(rest, train, "train", f"{test_source} without its held-out tasks"), held)
    # Taken over from the whole file, not from the chosen levels: a problem may be of another level there.
    known = {normalise(str(record.get("problem"))) for record in test_records if isinstance(record, dict)}
    tasks: list[Task] = []
    skipped = 0
    for index, (record, where) in enumerate(_of(levels, train_records, train_source, seed)):
        if len(tasks) >= train:
            break
        problem = _trained(f"train-{index}", record, where)
        usable = problem.answer is not None and normalise(problem.question) not in known
        skipped += not usable
        tasks += [_task(problem)] if usable else []
    return TaskSet(first(tasks, train, "train", train_source), held, skipped)


def _of(levels: Sequence[int], records: Sequence[object], source: str, seed: int) -> list[tuple[dict[str, object], str]]:
    """The problems of `levels`, shuffled, each with where it stands."""
    found = [(record, f"{source}, problem {number}") for number, record in enumerate(records, start=1)]
    return shuffled(((record, where) for record, where in found if _level(record, where) in levels), seed)  # pyright: ignore[reportReturnType]


def _level(record: object, where: str) -> int | None:
    """The level of a problem, or None for the few of MATH that have "Level ?"."""
    given = record.get("level") if isinstance(record, dict) else None
    level = _LEVEL.fullmatch(given if isinstance(given, str) else str(given))
    if level is None:
        raise CoterieError(f'{where}: a MATH problem needs a level from 1 to 5, written 3 or "Level 3"; {MATH.use_theirs}')
    return None if level[1] == "?" else int(level[1])


def _held_out(record: dict[str, object], where: str) -> _Problem:
    question, answer, name = _texts(record, ("problem", "answer", "unique_id"), where)
    return _Problem(f"math500-{name}", question, answer)


def _trained(task_id: str, record: dict[str, object], where: str) -> _Problem:
    question, solution = _texts(record, ("problem", "solution"), where)
    content = boxed(solution)
    return _Problem(task_id, question, content.strip() or None if content else None)


def _texts(record: dict[str, object], keys: Sequence[str], where: str) -> list[str]:
    texts = [record.get(key) for key in keys]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        raise CoterieError(f"{where}: a MATH problem needs the text fields {', '.join(keys)}; {MATH.use_theirs}")
    return [str(text) for text in texts]


def _task(problem: _Problem) -> Task:
    return Task(id=problem.id, question=problem.question, answer=problem.answer or "", ask=problem.question)
