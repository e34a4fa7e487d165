r"""exact: the answer is a text. The contents of the last `\boxed{...}`, or else the last line, must equal the gold answer.

Case, Unicode form, spacing, surrounding `$` and a full stop at the end do not count.
"""

import unicodedata
from collections.abc import Sequence

from coterie.grading.base import Grader, GradingError, boxed


class Exact(Grader):
    """With `boxed_only` a text without a box has no answer."""

    def __init__(self, boxed_only: bool = False):
        self.boxed_only = boxed_only

    def grade(self, answers: Sequence[tuple[str, str]]) -> list[float | GradingError]:
        return [self._one(text, gold) for text, gold in answers]

    def _one(self, text: str, gold: str) -> float | GradingError:
        right = normalise_answer(gold)
        if not right:
            return GradingError("the gold answer is empty; give each task an answer")
        given = answer_text(text, self.boxed_only)
        return float(given is not None and normalise_answer(given) == right)


def answer_text(text: str, boxed_only: bool = False) -> str | None:
    """The contents of the last box, or else the last line that is not blank; None where there is neither."""
    content = boxed(text)
    if content is not None or boxed_only:
        return content
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else None


def normalise_answer(text: str) -> str:
    text = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return text.removesuffix(".").strip("$ ")
