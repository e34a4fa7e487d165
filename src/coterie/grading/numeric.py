r"""numeric: the answer is one number, compared exactly. Fast, needs no package, and right for GSM8K and the pocket tasks.

It reads the last `\boxed{...}`, or the last number of a text without a box. Thousands commas, `$`, `%`, units and trailing zeros
do not matter: "$1,800.00", `\boxed{1800 \text{ ml}}` and "1800." are one answer. "50%" is both 50 and 1/2.

It differs from math-verify on purpose; `tests/grading/corpus.py` lists each case. In short: here `\boxed{18 dollars}`, several
boxes (the last counts) and "= 800 \text{ ml}" outside a box are read, and sums that are left to the reader (`\boxed{12 + 6}`) and
rounded values (0.333333 for 1/3) are not.
"""

import functools
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from coterie.grading.base import Grader, GradingError, boxed

MAX_LENGTH = 200
"""A box or number with more characters than this is no answer (it also keeps exact arithmetic cheap)."""

_DECIMAL = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|\.[0-9]+)"
_FRAC = r"\\frac\s*\{\s*[0-9]+\s*\}\s*\{\s*[0-9]+\s*\}"
_VALUE = rf"(?P<value>(?:[0-9]+\s+)?(?:{_FRAC}|[0-9]+\s*/\s*[0-9]+)|{_DECIMAL})"
_SIGN = r"(?P<sign>[-+]?\s*[$€£]?\s*[-+]?)"
_PERCENT = r"(?P<percent>\s*%)?"
_UNIT = r"(?:[^\W\d_][^0-9=+*<>(){}^\\]{0,60}(?:\^\{?[0-9]\}?)?)?"
_WHOLE = re.compile(rf"{_SIGN}\s*{_VALUE}{_PERCENT}\s*(?P<unit>{_UNIT})[\s.,;:!]*")
_IN_TEXT = re.compile(rf"(?<![A-Za-z0-9.^])(?<!\^\{{)(?P<sign>(?:(?<![\w)\].])-)?[$€£]?-?){_VALUE}{_PERCENT}")
_LATEX = (
    (re.compile(r"\\[dtc]frac"), r"\\frac"),
    (re.compile(r"\\frac\s*([0-9])\s*([0-9])"), r"\\frac{\1}{\2}"),
    (re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|bf)\s*\{([^{}]*)\}"), r" \1 "),
    (re.compile(r"(?<=[0-9])(?:\{,\}|,\\!|\\,(?=[0-9]{3}(?![0-9])))(?=[0-9])"), ","),
    (re.compile(r"\\([$%])"), r"\1"),
    (re.compile(r"\\[,;:! ]|~|\\q?quad"), " "),
    (re.compile(r"[−–](?=\s*[$€£]?\s*[.0-9])"), "-"),
    (re.compile(r"\*\*|\\\(|\\\)|\\\[|\\\]"), ""),
)


@dataclass(frozen=True, slots=True)
class Number:
    """`value` as written; with `percent` it also stands for a hundredth of itself."""

    value: Fraction
    percent: bool = False

    def same(self, other: "Number") -> bool:
        return not self._readings().isdisjoint(other._readings())

    def _readings(self) -> set[Fraction]:
        return {self.value, self.value / 100} if self.percent else {self.value}


class Numeric(Grader):
    """With `boxed_only` a text without a box has no answer (so that learning cannot drop the box and still be paid)."""

    def __init__(self, boxed_only: bool = False):
        self.boxed_only = boxed_only

    def grade(self, answers: Sequence[tuple[str, str]]) -> list[float | GradingError]:
        return [self._one(text, gold) for text, gold in answers]

    def _one(self, text: str, gold: str) -> float | GradingError:
        right = parse_number(gold, units=False)
        if right is None:
            return GradingError(f"the gold answer {gold[:60]!r} is not one number; use the grader math_verify or exact")
        given = answer_number(text, self.boxed_only)
        return float(given is not None and given.same(right))


def answer_number(text: str, boxed_only: bool = False) -> Number | None:
    r"""The number that `text` answers with, or None.

    A box decides alone: if its contents are not a number there is no answer. A `\boxed{` that was cut before its end is no answer
    either, since "\boxed{80" may have been going to be 800.
    """
    content = boxed(text)
    if content is not None:
        return parse_number(content)
    if boxed_only or "\\boxed" in text:
        return None
    found = deque(_IN_TEXT.finditer(_plain(text)), maxlen=1)
    return _number(found[0]) if found else None


def parse_number(text: str, units: bool = True) -> Number | None:
    """The number that the whole of `text` is, perhaps as the right side of an equation and, with `units`, before a unit."""
    return _parsed(text, units) if len(text) <= MAX_LENGTH else None


@functools.lru_cache(maxsize=4096)  # a group has one right answer, and its boxes hold few different numbers
def _parsed(text: str, units: bool) -> Number | None:
    plain = _plain(text).strip().strip("$").strip()
    found = _WHOLE.fullmatch(plain.rpartition("=")[2].strip() if units else plain)
    return None if found is None or (found["unit"] and not units) else _number(found)


def _plain(text: str) -> str:
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text


def _number(found: re.Match[str]) -> Number | None:
    raw = found["value"].replace(",", "")
    if len(raw) > MAX_LENGTH:
        return None
    whole, slash, below = re.sub(r"\\frac\s*\{\s*([0-9]+)\s*\}\s*\{\s*([0-9]+)\s*\}", r"\1/\2", raw).partition("/")
    *mixed, above = whole.split()
    if slash and int(below) == 0:
        return None
    value = Fraction(above) / (int(below) if slash else 1) + (int(mixed[0]) if mixed else 0)
    return Number(-value if found["sign"].count("-") == 1 else value, percent=bool(found["percent"]))
