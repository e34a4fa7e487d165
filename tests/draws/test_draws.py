"""What each draw asks for and keeps, against reward tables worked out from the published rules by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.draws.dynamic import DynamicDraw
from coterie.draws.fixed import FixedDraw
from coterie.draws.reinforce_ada import ReinforceAda

SPREAD = ReinforceAda(per_round=4, rounds=3, exit="spread", threshold=0.7, keep_high=2, keep_low=2)
"""talk-methods: 4, 8 or 12 chats."""
BALANCED = ReinforceAda(per_round=8, rounds=4, exit="balanced", threshold=0.7, keep_high=2, keep_low=2)
"""reinforce-ada: up to 32 replies."""
POSITIVE = ReinforceAda(per_round=8, rounds=4, exit="positive", threshold=0.7, keep_high=2, keep_low=2)

reward_pools = st.lists(st.sampled_from([None, 0.0, 0.5, 1.0]), max_size=32)


@pytest.mark.parametrize(
    ("pool", "done"),
    [
        ([0, 0, 0, 0], False),
        ([1, 1, 1, 1], False),  # solved by all: played on all the same, as published (weakness W13)
        ([0, 0, 0, 0.5], True),
        ([0, 0, 0, None], False),
        ([None] * 4, False),
    ],
)
def test_spread_is_done_at_two_different_rewards(pool, done):
    assert SPREAD.more([pool], 1) == [0 if done else 4]


@pytest.mark.parametrize(
    ("pool", "balanced", "positive"),
    [
        ([1, 0, 0, 0, 0, 0, 0, 0], False, False),
        ([1, 1, 0, 0, 0, 0, 0, 0], True, True),
        ([1, 1, 1, 1, 1, 1, 1, 0], False, True),
        ([1, 1, 1, 1, 1, 1, 1, None], False, True),
        ([0.7, 0.7, 1, 0, 0, 0, 0, 0], False, False),  # 0.7 is not above 0.7
    ],
)
def test_balanced_wants_two_of_each_and_positive_two_right(pool, balanced, positive):
    assert BALANCED.more([pool], 1) == [0 if balanced else 8]
    assert POSITIVE.more([pool], 1) == [0 if positive else 8]


def test_only_open_tasks_are_played_again_and_only_as_often_as_the_rounds_say():
    assert SPREAD.more([[], []], 0) == [4, 4]
    assert SPREAD.more([[0, 1, 0, 0], [0] * 4], 1) == [0, 4]
    assert SPREAD.more([[0, 1, 0, 0], [0] * 8], 2) == [0, 4]
    assert not any(SPREAD.more([[0, 1, 0, 0], [0] * 12], 3))


@pytest.mark.parametrize(
    ("pool", "kept"),
    [
        ([0, 1, 0.5, 0], [0, 1, 2, 3]),
        ([0, 0, 0, 0, 0, 1, 0, 0], [0, 1, 5, 7]),  # lows the earliest; the second high is the latest of the zeros
        ([1, 1, 1, 1, 1, 1, 0.5, 1], [0, 5, 6, 7]),
        ([0, 0.5, 1, 0.5, 0, 1, 0.5, 1], [0, 4, 5, 7]),
        ([0.0] * 12, [0, 1, 10, 11]),
        ([None, 0, 1, 0], [1, 2, 3]),
        ([None, 0, 0, 0, 0, 1], [1, 2, 4, 5]),
        ([None] * 4, []),
    ],
)
def test_spread_keeps_the_ends_of_a_stable_sort(pool, kept):
    assert list(SPREAD.keep(pool)) == kept


@pytest.mark.parametrize(
    ("pool", "kept"),
    [
        ([0, 0, 0, 0, 0, 1, 0, 1], [0, 1, 5, 7]),
        ([1, 1, 1, 0, 0, 0, 1, 0], [0, 1, 3, 4]),
        ([1, 1, 1, 1, 0, 1, 1, 1], [0, 1, 2, 4]),  # one wrong: a third right fills up
        ([0, 0, 1, 0, 0, 0, 0, 0], [0, 1, 2, 3]),
        ([0.0] * 32, [0, 1, 2, 3]),
        ([None, 1, None, 0, 1, 0, 0, 1], [1, 3, 4, 5]),
        ([None] * 8, []),
        ([None, 1, 0], [1, 2]),
    ],
)
@pytest.mark.parametrize("draw", [BALANCED, POSITIVE], ids=["balanced", "positive"])
def test_balanced_keeps_the_first_of_each_and_fills_up(draw, pool, kept):
    assert list(draw.keep(pool)) == kept


def test_the_two_published_rules_differ_on_ties():
    """Why `exit` decides the rule of keeping."""
    pool = [0, 1, 1, 0, 1, 0, 1, 0]
    assert (list(BALANCED.keep(pool)), list(SPREAD.keep(pool))) == ([0, 1, 2, 3], [0, 3, 4, 6])


@given(reward_pools, st.sampled_from([SPREAD, BALANCED, POSITIVE]))
def test_what_is_kept_is_graded_and_as_much_as_there_is_up_to_four(pool, draw):
    kept = list(draw.keep(pool))
    assert len(set(kept)) == len(kept) == min(4, sum(r is not None for r in pool))
    assert all(pool[i] is not None for i in kept)
    rewards = {pool[i] for i in kept}
    if draw is SPREAD:  # the extremes are always among them
        assert not kept or {min(r for r in pool if r is not None), max(r for r in pool if r is not None)} <= rewards
    else:  # and both sides, where there are both
        sides = {r > 0.7 for r in pool if r is not None}
        assert {r > 0.7 for r in rewards} == sides


def test_dynamic_drops_uniform_tasks_and_asks_for_as_many_others():
    draw = DynamicDraw(episodes=4, rounds=3)
    mixed, flat, failed = [0, 1, 0, 0], [1, 1, 1, 1], [None, 0, 0, None]
    assert draw.more([[], [], []], 0) == [4, 4, 4]
    first = [mixed, flat, failed]
    assert draw.more(first, 1) == [0, 0, 0, 4, 4]
    second = [*first, mixed, flat]
    assert draw.more(second, 2) == [0, 0, 0, 0, 0, 4]
    assert not any(draw.more([*second, flat], 3))
    assert [list(draw.keep(pool)) for pool in (mixed, flat, failed, [None, 0, 1, 0])] == [[0, 1, 2, 3], [], [], [1, 2, 3]]


@given(st.integers(1, 6), st.integers(1, 5), st.data())
def test_dynamic_ends_with_as_many_mixed_tasks_as_it_began_with_or_out_of_rounds(tasks, rounds, data):
    """Played as `train` plays it. Breaks if the number of tasks at the start is worked out wrongly in a later round."""
    draw, pools, played = DynamicDraw(2, rounds), [[] for _ in range(tasks)], 0
    while any(wanted := draw.more(pools, played)):
        pools += [[] for _ in range(len(wanted) - len(pools))]
        for pool, count in zip(pools, wanted, strict=True):
            pool += [0, data.draw(st.integers(0, 1))] if count else []
        played += 1
        mixed = sum(len(set(pool)) > 1 for pool in pools)
        assert mixed <= tasks
    assert mixed == tasks or played == rounds
    assert sum(bool(draw.keep(pool)) for pool in pools) == mixed


def test_dynamic_asks_for_nothing_that_a_small_training_set_cannot_give():
    """All two tasks of the set are flat; train found none to add, twice."""
    draw = DynamicDraw(2, 5)
    assert sum(draw.more([[0, 0], [0, 0]], 1)) == 4
    assert not any(draw.more([], 1))


def test_fixed_plays_once():
    assert FixedDraw(3).more([[], []], 0) == [3, 3]
    assert not any(FixedDraw(3).more([[0, 0, 0]], 1))


def test_a_task_is_done_when_episodes_of_one_cast_differ_and_not_before():
    """Rewards 0, 1, 0, 1 with the casts self, guest, self, guest: each partner has its own baseline and no spread, so there is
    nothing to learn yet. Breaks when rewards of different casts are held against each other."""
    draw = ReinforceAda(4, 3, "spread", 0.7, 2, 2)
    assert list(draw.more([[0, 1, 0, 1]], 1)) == [0]
    assert list(draw.more([[0, 1, 0, 1]], 1, [[0, 1, 0, 1]])) == [4]
    assert list(draw.more([[0, 1, 1, 1]], 1, [[0, 1, 0, 1]])) == [0]
    assert list(draw.more([[]], 0, [[]])) == [4]
