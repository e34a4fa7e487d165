r"""reasoning_gym: the scorer that comes with each ReasoningGYM data set, partial credit kept.

The answer is what stands in the last `<answer>…</answer>`, the tags that the package's own prompt asks for; without them in the
last box, or else in the last line. No answer is worth 0.

An answer may be a stranger's (rollouts of a swarm), and two of the package's scorers cannot be trusted with one. binary_matrix runs
`eval` on it: here the same scores are found by reading JSON. propositional_logic makes a truth table over whatever names the answer
has, 2**n rows: here an answer with more than eight names is worth 0. Both were read in reasoning-gym 0.1.25.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, localcontext
from typing import Any

from coterie.grading.base import Grader, GradingError
from coterie.grading.exact import answer_text
from coterie.tasks.reasoning_gym import SOURCE, dataset
from coterie.types import Task

LONGEST = 1000
"""An answer with more characters, and more than four times the right one's, is worth 0 unread."""
LONGEST_FORMULA, NAMES = 200, 8
"""For propositional_logic: the parser recurses at each operator, and the truth table has 2**names rows."""


class ReasoningGym(Grader):
    """Needs the task itself, since several answers may be right: use `grade_tasks`. In this process: a score takes microseconds."""

    def grade(self, answers: Sequence[tuple[str, str]]) -> list[float | GradingError]:
        return [GradingError("the grader reasoning_gym needs the task and not only its answer; call grade_tasks") for _ in answers]

    def grade_tasks(self, answers: Sequence[tuple[str, Task]]) -> list[float | GradingError]:
        return [_grade(text, task) for text, task in answers]


def tagged(text: str) -> str | None:
    """What stands in the last `<answer>…</answer>` that is closed. Linear in the length of the text."""
    end = text.rfind("</answer>")
    start = text.rfind("<answer>", 0, end) if end >= 0 else -1
    return text[start + len("<answer>") : end].strip() if start >= 0 else None


def _grade(text: str, task: Task) -> float | GradingError:
    source, _, name = task.meta.get("reference", {}).get("source", "").partition("/")
    if source != SOURCE:
        return GradingError(f'task {task.id} is not of tasks.kind = "reasoning_gym", whose scorers this grader calls')
    answer = tagged(text)
    answer = answer_text(text) if answer is None else answer
    entry = task.meta["entry"]
    if not answer or len(answer) > max(LONGEST, 4 * len(task.answer)):
        return 0.0
    try:
        package = dataset(name, task.meta["reference"]["config"]).score_answer
        with localcontext(Context()):  # the precision that decimal answers are compared with is nobody else's
            score = float(_SCORERS.get(name, _package)(answer, entry, package))
    except Exception as error:  # scorers raise many kinds; none of them says that the answer is wrong
        return GradingError(f"the scorer of {name} raised {type(error).__name__}: {error}"[:300])
    if not -1e-6 <= score <= 1 + 1e-6:  # calendar_arithmetic has no upper bound where the right number is negative
        return GradingError(f"the scorer of {name} gave {score:g}, which is no score between 0 and 1")
    return min(1.0, max(0.0, score))


def _package(answer: str, entry: Mapping[str, Any], package: Callable[..., float]) -> float:
    return package(answer, entry)


def _binary_matrix(answer: str, entry: Mapping[str, Any], package: Callable[..., float]) -> float:
    """1.0 for the matrix as the question writes it, 0.1 for the same numbers as a list of lists."""
    if answer == entry["answer"]:
        return 1.0
    try:
        rows = json.loads(answer)
        return 0.1 * ("\n".join(" ".join(str(cell) for cell in row) for row in rows) == entry["answer"])
    except (ValueError, TypeError, RecursionError):
        return 0.0


def _propositional_logic(answer: str, entry: Mapping[str, Any], package: Callable[..., float]) -> float:
    names = {part.strip() for part in re.split("[∧∨¬→↔()]", answer)} | set(entry["metadata"]["variables"])
    return package(answer, entry) if len(answer) <= LONGEST_FORMULA and len(names - {""}) <= NAMES else 0.0


_SCORERS = {"binary_matrix": _binary_matrix, "propositional_logic": _propositional_logic}
