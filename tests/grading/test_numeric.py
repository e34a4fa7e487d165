import time
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.grading.base import GradingError
from coterie.grading.numeric import Numeric, answer_number, parse_number


def score(text, gold, boxed_only=False):
    return Numeric(boxed_only).grade([(text, gold)])[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("18", 18),
        ("1,800", 1800),
        ("12,345,678.50", Fraction(1234567850, 100)),
        ("1,80", None),
        ("18,19", None),
        (".5", Fraction(1, 2)),
        ("-$3", -3),
        ("$-3", -3),
        ("−3", -3),
        ("+3", 3),
        ("18.", 18),
        (r"18\ \text{m}^2", 18),
        ("18 m^2", 18),
        ("18 miles per hour", 18),
        ("3 1/2", Fraction(7, 2)),
        (r"-\frac{1}{2}", Fraction(-1, 2)),
        (r"\frac12", Fraction(1, 2)),
        ("1/0", None),
        ("18 and 19", None),
        ("a 18", None),
        ("12 + 6", None),
        ("x = 2 y = 3", 3),
        ("", None),
        ("eighteen", None),
        ("٣", None),
        ("9" * 5000, None),
    ],
)
def test_parse_number(text, value):
    number = parse_number(text)
    assert (number and number.value) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("There are 3 cats and 18 dogs.", 18),
        ("3, 4 and 5", 5),
        ("x2 has 7, H2O", 7),
        ("10^2 m^2 and 800 m^{2}", 800),
        ("2024-05", 5),
        ("(-4)", -4),
        ("I paid -$4", -4),
        (r"= \frac{3}{4}", Fraction(3, 4)),
        (r"\boxed{?} or 18", None),
        ("no number", None),
    ],
)
def test_the_last_number_of_a_text(text, value):
    number = answer_number(text)
    assert (number and number.value) == value


def test_boxed_only_pays_no_answer_without_a_box():
    assert score("the answer is 18", "18") == 1.0
    assert score("the answer is 18", "18", boxed_only=True) == 0.0
    assert score(r"the answer is \boxed{18}", "18", boxed_only=True) == 1.0


@pytest.mark.parametrize("gold", ["", "eighteen", "18 dollars", "18x", "1 and 2", "9" * 5000])
def test_a_gold_answer_that_is_no_number_is_an_error_and_not_a_zero(gold):
    result = score("18", gold)
    assert isinstance(result, GradingError)
    assert "gold answer" in result.reason


def test_one_bad_gold_touches_no_other_answer():
    first, second, third = Numeric().grade([("18", "18"), ("18", "?"), ("17", "18")])
    assert (first, third) == (1.0, 0.0)
    assert isinstance(second, GradingError)


integers = st.integers(-(10**9), 10**9)


@given(
    integers,
    st.sampled_from(["{}", "{:,}", r"\boxed{{{}}}", r"so \boxed{{{:,}}}", "I get {}.", "**{:,}**", "${:,}$", r"\boxed{{{} ml}}"]),
)
def test_every_spelling_of_a_number_is_the_number(number, form):
    assert score(form.format(number), str(number)) == 1.0
    assert score(form.format(number), str(number + 1)) == 0.0


@given(st.decimals(min_value=-(10**6), max_value=10**6, places=3, allow_nan=False))
def test_decimals_are_compared_exactly(number):
    assert score(f"it is {number}", str(number)) == 1.0
    assert score(f"it is {number}000", str(number)) == 1.0
    assert score(f"it is {number + Decimal('0.001')}", str(number)) == 0.0


@given(st.text(max_size=200))
def test_any_text_has_a_score(text):
    assert score(text, "18") in (0.0, 1.0)


@pytest.mark.parametrize("piece", ["1", " ", "1 ", "1,", "\\frac{", "\\boxed{", "$", "-", "{", "1/"])
def test_hostile_texts_take_no_time(piece):
    started = time.perf_counter()
    score(piece * 20_000, "18")
    assert time.perf_counter() - started < 2.0
