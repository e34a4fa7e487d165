"""What every rule must do, for scores of any kind."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.credit.base import plain
from coterie.credit.leave_one_out import LeaveOneOut
from coterie.credit.own_and_readers import OwnAndReaders
from coterie.credit.per_partner import per_partner
from coterie.credit.per_role import per_role
from coterie.credit.raft import raft
from coterie.credit.readers_mean import readers_mean
from coterie.credit.shaping import Shaped
from coterie.credit.team_mean import team_mean
from coterie.credit.zero_notes import ZeroNotes
from coterie.types import BASE
from tests.credit.games import board, chat, group

MEANS = {
    "team_mean": plain(team_mean),
    "zero_notes": plain(ZeroNotes(False)),
    "left_out": plain(ZeroNotes(True)),
    "readers_mean": plain(readers_mean),
    "own_and_readers": plain(OwnAndReaders(0.7)),
    "per_partner": plain(per_partner),
    "per_role": plain(per_role),
    "leave_one_out": LeaveOneOut(2),
}
RULES = {
    **MEANS,
    "raft": plain(raft),
    "shaped": Shaped(plain(team_mean), 0.1, 0.3),
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
every_mean = pytest.mark.parametrize("rule", MEANS.values(), ids=MEANS)
few = settings(max_examples=40, deadline=None)

COPIES = 3
score = st.floats(-10, 10, width=32)
scores = st.lists(score, min_size=2 * COPIES, max_size=2 * COPIES)
pools = st.lists(scores, min_size=1, max_size=5)


def ring(values, index=0, failed=False):
    return board(values[:COPIES], notes=values[COPIES:], visible=2, index=index, failed=failed)


def rings(pool):
    return [ring(values, index) for index, values in enumerate(pool)]


def pay(rule, episodes, pool=None, again=lambda probe, played: played):
    """The advantages, each probe answered by `again`; by default a replay that changes nothing."""
    played = group(*episodes, pool=pool)
    return rule.advantages(played, {p: again(p, played.episodes[p.episode]) for p in rule.probes(played)})


@every_mean
@few
@given(score, st.integers(1, 5))
def test_equal_scores_are_exactly_zero(rule, value, count):
    """A computed mean of equal numbers can differ from them by one rounding, which would pass for a signal."""
    for of_episode in pay(rule, rings([[value] * 2 * COPIES] * count)):
        assert all(a in (0.0, None) for a in of_episode)
    for of_episode in pay(rule, [chat(value, value, i) for i in range(count)]) if rule is not MEANS["own_and_readers"] else []:
        assert all(a in (0.0, None) for a in of_episode)


@every_mean
@few
@given(pools, st.floats(-100, 100))
def test_a_constant_added_to_every_score_changes_nothing(rule, pool, constant):
    moved = [[value + constant for value in values] for values in pool]
    for before, after in zip(pay(rule, rings(pool)), pay(rule, rings(moved)), strict=True):
        assert after == [None if a is None else pytest.approx(a, abs=1e-9) for a in before]


@every_rule
@few
@given(pools, st.randoms(use_true_random=False))
def test_the_order_of_episodes_does_not_matter(rule, pool, random):
    """To the last bit: means are exact, so no order of summation shows."""
    episodes = rings(pool)
    order = list(range(len(pool)))
    random.shuffle(order)
    whole = pay(rule, episodes)
    assert pay(rule, [episodes[i] for i in order]) == [whole[i] for i in order]


@every_mean
@few
@given(pools)
def test_sums_to_zero_over_a_fixed_draw(rule, pool):
    """All messages together; on a ring every note has a reader and no seat speaks twice. (leave_one_out: replays that change
    nothing.)"""
    total = math.fsum(a or 0.0 for of_episode in pay(rule, rings(pool)) for a in of_episode)
    assert total == pytest.approx(0.0, abs=1e-10)


@every_rule
@few
@given(pools, scores, st.integers(0, 5))
def test_an_episode_whose_grading_failed_gets_zero_and_moves_nobody(rule, pool, values, place):
    """Its messages carry scores here (one grader of several failed): they must not be in any mean."""
    episodes, place = rings(pool), min(place, len(pool))
    broken = ring(values, index=9, failed=True)
    credits = pay(rule, [*episodes[:place], broken, *episodes[place:]])
    assert all(a in (0.0, None) for a in credits.pop(place))
    assert credits == pay(rule, episodes)


@every_rule
def test_all_grading_failed(rule):
    (credits,) = pay(rule, [ring([1.0] * 2 * COPIES, failed=True)])
    assert all(a in (0.0, None) for a in credits)


@every_mean
@few
@given(pools)
def test_the_mean_is_over_the_pool_and_not_over_what_is_kept(rule, pool):
    """Keeping one episode leaves its advantages as they are when all are kept (Reinforce-Ada, 2510.04996)."""
    episodes = rings(pool)
    assert pay(rule, episodes[:1], pool=episodes) == pay(rule, episodes)[:1]


@every_rule
@few
@given(pools)
def test_one_number_a_message(rule, pool):
    credits = pay(rule, rings(pool))
    assert [len(of) for of in credits] == [2 * COPIES] * len(pool)
    assert all(a is None or math.isfinite(a) for of in credits for a in of)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@every_mean
def test_a_score_that_is_not_finite_is_refused(rule, bad):
    with pytest.raises(ValueError, match="not finite"):
        pay(rule, [ring([1.0] * 6), ring([bad] * 6)])


@every_mean
def test_a_reward_without_a_pool_is_refused(rule):
    """There is nothing to compare with: an empty mean, or no mean for the role or cast. Silence would pay the raw score."""
    with pytest.raises((ValueError, KeyError)):
        pay(rule, [ring([1.0] * 6)], pool=[])


@few
@given(pools, pools)
def test_partners_do_not_meet_in_a_mean(ours, theirs):
    """per_partner on both casts together equals per_partner on each alone."""
    mine = [chat(v[0], v[1], i) for i, v in enumerate(ours)]
    base = [chat(v[0], v[1], i, partner=BASE) for i, v in enumerate(theirs)]
    together = per_partner(group(*mine, *base))
    assert together == per_partner(group(*mine)) + per_partner(group(*base))


@few
@given(pools, st.floats(0, 5), st.floats(0, 5), st.data())
def test_shaping_adds_up_to_zero_for_each_kind_of_message(pool, cost, bonus, data):
    lengths = st.integers(1, 400)
    episodes = []
    for e in rings(pool):
        said = [replace(m, ids=(3,) * data.draw(lengths), stop=data.draw(st.sampled_from(("eos", "length")))) for m in e.messages]
        episodes.append(replace(e, messages=tuple(said)))
    before, after = pay(RULES["team_mean"], episodes), pay(Shaped(RULES["team_mean"], cost, bonus), episodes)
    for kind in (slice(0, COPIES), slice(COPIES, None)):
        added = [b - a for x, y in zip(before, after, strict=True) for a, b in zip(x[kind], y[kind], strict=True)]
        assert math.fsum(added) == pytest.approx(0.0, abs=1e-8)
