import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.credit.team_mean import team_mean
from coterie.types import POLICY, Episode, Group, Message, Task

TASK = Task(id="t", question="q", answer="1", ask="q")


def message(turn):
    seat = "AB"[turn % 2]
    return Message(seat, POLICY, turn, False, (1, 2), (3,), (-0.5,), "eos", "x", 1.0, 0)


def group(rewards, lengths=None, pool=None):
    lengths = lengths or [2] * len(rewards)
    episodes = tuple(
        Episode("t", i, {"A": POLICY, "B": POLICY}, tuple(message(k) for k in range(n)), {}, reward)
        for i, (reward, n) in enumerate(zip(rewards, lengths, strict=True))
    )
    drawn = (Episode("t", i, {}, (), {}, reward) for i, reward in enumerate(pool or ()))
    return Group(TASK, episodes, episodes if pool is None else tuple(drawn))


def test_by_hand():
    assert team_mean(group([1.0, 0.0, 0.5, 0.5])) == [[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0], [0.0, 0.0]]


def test_baseline_counts_episodes_not_messages():
    """A mean over rows would be 5/6 here, because the first episode has five messages (agent-lightning PR #445)."""
    assert team_mean(group([1.0, 0.0], lengths=[5, 1])) == [[0.5] * 5, [-0.5]]


def test_baseline_is_the_whole_pool_drawn():
    """One right answer in four draws; two episodes kept. The kept ones alone would have the mean 0.5."""
    assert team_mean(group([1.0, 0.0], pool=[1.0, 0.0, 0.0, 0.0])) == [[0.75, 0.75], [-0.25, -0.25]]


def test_failed_grader_is_neither_wrong_nor_in_the_baseline():
    advantages = team_mean(group([1.0, None, 0.0]))
    assert advantages == [[0.5, 0.5], [0.0, 0.0], [-0.5, -0.5]]


def test_failed_grader_leaves_equal_rewards_equal():
    assert team_mean(group([1.0, None, 1.0])) == [[0.0, 0.0]] * 3


def test_all_graders_failed():
    assert team_mean(group([None, None])) == [[0.0, 0.0]] * 2


def test_kept_episodes_equal_but_the_pool_differs():
    assert team_mean(group([1.0, 1.0], pool=[1.0, 1.0, 0.0, 0.0])) == [[0.5, 0.5]] * 2


def test_no_messages_and_no_episodes():
    assert team_mean(group([1.0, 0.0], lengths=[0, 1])) == [[], [-0.5]]
    assert team_mean(group([])) == []


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_reward_is_refused(bad):
    with pytest.raises(ValueError, match="not finite"):
        team_mean(group([1.0, bad]))


def test_reward_without_a_pool_is_refused():
    with pytest.raises(ValueError, match="pool_rewards"):
        team_mean(group([1.0, 0.0], pool=[None]))


rewards = st.lists(st.floats(-10, 10, width=32), min_size=1, max_size=12)


@given(rewards)
def test_sums_to_zero_over_a_fixed_draw(values):
    assert math.fsum(a[0] for a in team_mean(group(values))) == pytest.approx(0.0, abs=1e-12)


@given(rewards, st.floats(-100, 100))
def test_a_constant_changes_nothing(values, constant):
    before, after = team_mean(group(values)), team_mean(group([value + constant for value in values]))
    assert [a[0] for a in after] == pytest.approx([a[0] for a in before], abs=1e-11)


@given(st.floats(-1e6, 1e6), st.integers(1, 9))
def test_equal_rewards_are_exactly_zero(value, count):
    """[0.1] * 3 and the like: a computed mean can differ from the value by one rounding."""
    assert all(a == 0.0 for row in team_mean(group([value] * count)) for a in row)


@given(
    st.lists(st.one_of(st.none(), st.floats(-1, 1)), min_size=1, max_size=8), st.lists(st.integers(0, 5), min_size=8, max_size=8)
)
def test_shape_follows_the_group_and_messages_share_alike(values, lengths):
    made = group(values, lengths=lengths[: len(values)])
    advantages = team_mean(made)
    assert [len(row) for row in advantages] == [len(e.messages) for e in made.episodes]
    assert all(len(set(row)) <= 1 for row in advantages)


@given(rewards, st.randoms(use_true_random=False))
def test_order_of_episodes_does_not_matter(values, random):
    order = list(range(len(values)))
    random.shuffle(order)
    whole = team_mean(group(values))
    assert team_mean(group([values[i] for i in order])) == [whole[i] for i in order]
