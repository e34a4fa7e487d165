import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.grading.base import Grader, boxed


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ("no box", None),
        (r"\boxed{18}", "18"),
        (r"\boxed{18} then \boxed{7}.", "7"),
        (r"\boxed{\frac{1}{2}} }", r"\frac{1}{2}"),
        (r"\boxed{80", None),
        (r"\boxed{7} or \boxed{80", "7"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"{ { \boxed{5}", "5"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\left\{ 1 \right.}", r"\left\{ 1 \right."),
        (r"\boxed {4}", "4"),
        (r"\boxed{}", ""),
        (r"} \boxed{6}", "6"),
        (r"\boxed{a \\}", r"a \\"),
        (r"\fbox{18}", None),
    ],
)
def test_boxed(text, content):
    assert boxed(text) == content


@given(st.text(alphabet="ab1{}\\", max_size=30), st.text(alphabet="xyz 12", max_size=8))
def test_the_last_box_is_found_after_any_text(before, content):
    # an escaping backslash at the end of `before` would take the box's own backslash, hence the space
    assert boxed(f"{before} \\boxed{{{content}}}") == content


def test_a_long_hostile_text_takes_linear_time():
    assert boxed("\\boxed{" * 200_000) is None
    assert boxed("\\boxed{" * 100_000 + "}" * 100_000) == ""


def test_the_interface_names_no_score():
    with pytest.raises(NotImplementedError):
        Grader().grade([("18", "18")])
