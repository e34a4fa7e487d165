import pytest

from coterie.grading.base import GradingError
from coterie.grading.exact import Exact


@pytest.mark.parametrize(
    ("text", "gold", "score"),
    [
        (r"I say \boxed{Monday}.", "monday", 1.0),
        ("thinking\n\n  Monday. \n", "Monday", 1.0),
        ("Monday\nTuesday", "Monday", 0.0),
        (r"\boxed{Tuesday} Monday", "Monday", 0.0),
        (r"\boxed{$x + 1$}", "x  +  1", 1.0),
        ("", "Monday", 0.0),
        ("\n \n", "Monday", 0.0),
        ("18", "18.0", 0.0),
    ],
)
def test_exact(text, gold, score):
    assert Exact().grade([(text, gold)]) == [score]


def test_boxed_only():
    assert Exact(boxed_only=True).grade([("Monday", "Monday"), (r"\boxed{Monday}", "Monday")]) == [0.0, 1.0]


def test_an_empty_gold_answer_is_an_error():
    assert isinstance(Exact().grade([("", " ")])[0], GradingError)
