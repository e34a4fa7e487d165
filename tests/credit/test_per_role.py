import pytest

from coterie.credit.baselines import role_of
from coterie.credit.per_role import per_role
from tests.credit.games import board, chat, episode, group, say


@pytest.mark.parametrize(
    ("seat", "role"),
    [("writer 2", "writer"), ("reader 11", "reader"), ("A", "A"), ("copy_3", "copy"), ("B2", "B"), ("2nd", "2nd"), ("1", "1")],
)
def test_role_is_the_name_without_its_number(seat, role):
    assert role_of(seat) == role


def test_each_seat_is_paid_its_own_score_against_its_own_role():
    """A scores 1 and 0, B scores 1 and 1: B has nothing to learn. The team's mean would pay B for A's luck."""
    assert per_role(group(chat(1.0, 1.0), chat(0.0, 1.0))) == [[0.5, 0.0, 0.5, 0.0], [-0.5, 0.0, -0.5, 0.0]]


def test_writers_are_paid_the_grade_of_their_notes():
    (credits,) = per_role(group(board([1.0, 0.0, 1.0, 1.0], notes=[0.0, 1.0, 0.0, 0.0])))
    assert credits == [-0.25, 0.75, -0.25, -0.25, 0.25, -0.75, 0.25, 0.25]


def test_writers_without_a_grade_are_paid_the_team_reward():
    first, second = per_role(group(board([1.0, 1.0]), board([1.0, 0.0])))
    assert first == [0.25, 0.25, 0.25, 0.25]
    assert second == [-0.25, -0.25, 0.25, -0.75]


def test_a_seat_that_speaks_often_counts_once():
    """Means over messages would be (3 * 1 + 0) / 4 here (agent-lightning PR #445)."""
    often = episode([*(say("A", t) for t in range(2)), say("A", 2, final=True, score=1.0)])
    once = episode([say("A", 0, final=True, score=0.0)])
    assert per_role(group(often, once)) == [[0.5] * 3, [-0.5]]


def test_a_constant_for_one_role_changes_nothing():
    """Dr. MAS: with one mean over roles, the level of B's scores would move A's advantages."""
    plain = per_role(group(chat(1.0, 0.0), chat(0.0, 0.5)))
    assert per_role(group(chat(1.0, 4.0), chat(0.0, 4.5))) == plain
