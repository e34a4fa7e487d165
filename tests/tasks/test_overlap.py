import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.tasks.base import TaskSet
from coterie.tasks.overlap import check_overlap, normalise, overlap, template
from coterie.types import CoterieError, Task


def task(task_id, question, **other):
    return Task(id=task_id, question=question, answer="1", ask=other.pop("ask", question), **other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How many pens?", "  how MANY\n pens "),
        ("Ann’s pens; 3, 4.", "ann's pens 3 4"),
        ("a well-known fact", "a well known fact"),
        ("3 + 4 = ?", "3+4="),
        ("3 – 4", "3-4"),
        ("ｆｕｌｌ ① Straße", "full 1 STRASSE"),
        ("It costs $5", "It costs $ 5."),
    ],
)
def test_the_same_question(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("3-4", "3/4"), ("3*4", "3+4"), ("1.5", "15"), ("(3-4)*2", "3-(4*2)"), ("5%", "5"), ("pens 12", "pens 1 2"), ("x", "")],
)
def test_another_question(one, other):
    assert normalise(one) != normalise(other)


@given(st.text(alphabet=string.printable + "éÉßﬁ½–—“”", max_size=40))
def test_normalise_is_idempotent_and_blind_to_case_and_spacing(text):
    once = normalise(text)
    assert normalise(once) == once
    assert normalise(f"  {text.swapcase()}\t") == normalise(text.casefold())


def test_a_planted_duplicate_is_found_and_named():
    tasks = TaskSet(
        train=(task("train-0", "Ann has 3 pens. How many?"), task("train-1", "Bob?")),
        held_out=(task("test-0", "Cal?"), task("test-1", "ann  has 3 PENS, how many")),
    )
    with pytest.raises(
        CoterieError, match=r"^1 of 2 held-out tasks ask the same question as a train task: test-1 \(= train-0\); remove"
    ):
        check_overlap(tasks)


def test_it_reads_the_question_and_nothing_else():
    same = {"ask": "How many?", "private": {"A": ("x",)}, "meta": {"prompt": "same"}}
    check_overlap(TaskSet(train=(task("a", "one", **same),), held_out=(task("a", "two", **same),)))
    with pytest.raises(CoterieError, match=r"b \(= a\)"):
        check_overlap(
            TaskSet(
                train=(task("a", "one", ask="p", meta={"prompt": 1}),), held_out=(task("b", "One", ask="q", meta={"prompt": 2}),)
            )
        )


def test_duplicates_on_one_side_are_allowed_and_long_lists_are_cut():
    check_overlap(TaskSet(train=(task("a", "one"), task("b", "one")), held_out=(task("c", "two"), task("d", "two"))))
    with pytest.raises(CoterieError, match=r"^7 of 7 .*h4 \(= t4\), …; remove"):
        check_overlap(TaskSet(tuple(task(f"t{i}", str(i)) for i in range(7)), tuple(task(f"h{i}", str(i)) for i in range(7))))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ann has 3 pens.", "Bob has 1,200 pens."),
        ("Then Mary Ann Lee pays $5.", "Then Bob pays $17.50"),
        ("At noon Ann's pens are 1/2 full", "At noon Élodie’s pens are 3/4 full."),
    ],
)
def test_the_same_template(one, other):
    assert template(one) == template(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [("Ann has 3 pens.", "Ann has 3 cards."), ("3 + 4", "3 * 4"), ("Ann and Bob", "Ann or Bob"), ("so Ann ran", "so she ran")],
)
def test_another_template(one, other):
    assert template(one) != template(other)


def test_overlap_counts_questions_and_templates():
    tasks = TaskSet(
        train=(task("a", "Ann has 3 pens. How many?"), task("b", "Bob ran 4 miles.")),
        held_out=(
            task("c", "ann HAS 3 pens, how many"),  # the question; without capitals it has another template
            task("d", "Cal has 5 pens. How many?"),
            task("e", "Dan ran 17 miles."),
            task("f", "Eve sang."),
        ),
    )
    assert overlap(tasks) == {"questions": 1, "templates": 2 / 4}
    assert overlap(TaskSet(train=(), held_out=())) == {"questions": 0, "templates": None}
