"""What a grader is, and where an answer stands in a text."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.types import Task

_TOKEN = re.compile(r"\\boxed\s*\{|\\[{}\\]|[{}]")


@dataclass(frozen=True, slots=True)
class GradingError:
    """Why an answer could not be graded: a value in place of a score, so that a broken grader is never read as a wrong answer."""

    reason: str


class Grader:
    """Grades final messages in batches. Graders may be called from several threads at once."""

    def grade(self, answers: Sequence[tuple[str, str]]) -> list[float | GradingError]:
        """One score per `(text of the final message, gold answer)`: 1.0 right, 0.0 wrong or no answer found.

        What keeps the grader from judging (a gold answer that it cannot read, a worker that dies) is a `GradingError` at that
        place and touches no other answer.
        """
        raise NotImplementedError

    def grade_tasks(self, answers: Sequence[tuple[str, Task]]) -> list[float | GradingError]:
        """The same with the whole task, for graders that need more of it than one right answer."""
        return self.grade([(text, task.answer) for text, task in answers])

    def close(self) -> None:
        """Frees what the grader holds; graders without processes hold nothing."""

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def boxed(text: str) -> str | None:
    r"""The contents of the last `\boxed{...}` of `text` whose braces match, or None.

    Escaped braces (`\{`) do not count. A box that is never closed, as in a message that was cut, is no box; of nested boxes the
    inner one counts. One pass, linear in the length of the text.
    """
    open_braces: list[tuple[bool, int]] = []
    last: tuple[int, int] | None = None
    for token in _TOKEN.finditer(text):
        if token.group() == "}":
            if open_braces:
                is_box, start = open_braces.pop()
                if is_box and (last is None or start > last[0]):
                    last = (start, token.start())
        elif token.group() == "{" or token.group().startswith("\\boxed"):
            open_braces.append((token.group() != "{", token.end()))
    return None if last is None else text[last[0] : last[1]]
