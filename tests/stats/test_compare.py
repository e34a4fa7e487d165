"""compare(): the published results recomputed, the verdict rule, scipy as oracle, and what must never change the answer."""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.stats.compare import as_row, compare, sentence
from coterie.types import CoterieError

# Scores per training seed as published with each recipe (Qwen2.5-1.5B-Instruct, September 2026).
OFF = {17: 0.0375, 18: 0.025, 19: 0.0242}
CHAT = {17: 0.4025, 18: 0.145, 19: 0.3475}
ADA = {17: 0.4033, 18: 0.3875, 19: 0.3592}
RAFT = {17: 0.3067, 18: 0.1, 19: 0.3475}
READERS_ONLY = {17: 0.3175, 18: 0.3258, 19: 0.3517}
WRITERS_PAID = {17: 0.3008, 18: 0.2308, 19: 0.3375}
PLAIN = {17: 0.65, 18: 0.6667}
TEAM_PROMPT = {17: 0.65, 18: 0.6708}

quick = settings(max_examples=40, deadline=None)  # no deadline: this runs on shared machines
score = st.integers(0, 1000).map(lambda k: k / 1000)
runs = st.dictionaries(st.integers(0, 30), score, min_size=1, max_size=8)


def test_published_talk_to_solve_is_unresolved_with_three_seeds():
    c = compare(OFF, CHAT)
    assert c.delta == pytest.approx(0.2694, abs=5e-5)
    assert c.interval == pytest.approx((-0.056, 0.595), abs=5e-4)
    assert (c.n, c.paired, c.p, c.verdict) == (3, True, 0.25, "unresolved")
    assert (c.seeds_needed, c.seeds_to_settle) == (5, 5)
    assert c.per_seed == pytest.approx({17: 0.365, 18: 0.12, 19: 0.3233})
    text = sentence(c, "chat", "off")
    for part in (
        "chat against off: unresolved",
        "is higher by 0.269",
        "-0.056 to +0.595",
        "3 paired seeds",
        "p = 0.25",
        "about 5 seeds",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("baseline", "arm", "delta", "verdict", "needed"),
    [
        (CHAT, ADA, 0.085, "unresolved", 23),
        (CHAT, RAFT, -0.0469, "unresolved", 11),
        (READERS_ONLY, WRITERS_PAID, -0.042, "unresolved", 12),
        (PLAIN, TEAM_PROMPT, 0.00205, "no change detected", 18),
    ],
)
def test_other_published_recipes(baseline, arm, delta, verdict, needed):
    c = compare(baseline, arm)
    assert c.delta == pytest.approx(delta, abs=5e-5)
    assert (c.verdict, c.seeds_needed) == (verdict, needed)


def test_moved_and_moved_the_wrong_way_are_said():
    better = {seed: value + 0.3 + 0.01 * (seed - 18) for seed, value in CHAT.items()}
    assert compare(CHAT, better).verdict == "moved"
    worse = compare(better, CHAT)
    assert worse.verdict == "moved the wrong way"
    assert "moved the wrong way. The score is lower by 0.300" in sentence(worse, "chat", "better")


def test_interval_decides_and_p_does_not():
    c = compare({1: 0.1, 2: 0.1, 3: 0.1}, {1: 0.4, 2: 0.41, 3: 0.42})
    assert (c.verdict, c.p) == ("moved", 0.25)


def test_one_pair_is_unresolved_and_shows_its_difference():
    c = compare({17: 0.1, 18: 0.2, 20: 0.9}, {17: 0.3})
    assert c.delta == pytest.approx(0.2)
    assert (c.n, c.interval, c.p, c.p_t, c.sd, c.verdict, c.left_out) == (1, None, None, None, None, "unresolved", (18, 20))
    assert "no interval" in sentence(c, "a", "b")
    assert "seeds 18, 20" in sentence(c, "a", "b")


@pytest.mark.parametrize(
    ("base", "arm", "paired", "n"),
    [
        ([1, 2, 3], [1, 2, 3], True, 3),
        ([1, 2, 3], [1, 2, 3, 4], True, 3),  # the fourth is not done yet
        ([1, 2, 3], [2, 3, 4], True, 2),
        ([1, 2, 3], [1, 2, 3, 4, 5, 6], True, 3),
        ([1, 2, 3], [1, 2, 3, 4, 5, 6, 7], False, 3),  # pairing would throw away more than half of an arm
        ([1, 2], [2, 3], False, 2),  # one pair shows nothing, and four runs do
        ([1, 2, 3], [4, 5, 6], False, 3),
        ([1], [1, 2, 3], True, 1),
        ([1], [2, 3], False, 1),
    ],
)
def test_seeds_are_paired_where_most_of_them_match(base, arm, paired, n):
    """By the seeds alone, never by the scores; and both ways round."""
    rng = np.random.default_rng(1)
    one, other = ({seed: float(rng.random()) for seed in seeds} for seeds in (base, arm))
    for c in (compare(one, other), compare(other, one)):
        assert (c.paired, c.n) == (paired, n)
        assert ("not paired" in sentence(c, "a", "b")) != paired
    if not paired and n > 1:
        oracle = stats.ttest_ind(list(other.values()), list(one.values()), equal_var=False)
        assert compare(one, other).interval == pytest.approx(tuple(oracle.confidence_interval()))


def test_equal_differences_give_a_point_and_no_verdict():
    """With few held-out tasks two seeds often agree by chance: one time in ten with 8 tasks and no effect at all."""
    c = compare({1: 0.1, 2: 0.2, 3: 0.15}, {1: 0.4, 2: 0.5, 3: 0.45})
    assert c.interval == pytest.approx((0.3, 0.3))
    assert (c.sd, c.verdict, c.seeds_needed, c.smallest_effect, c.p_t) == (0.0, "unresolved", 2, 0.0, None)
    assert "is a point" in sentence(c, "a", "b")


def test_no_difference_at_all_is_no_change_even_through_rounding():
    c = compare({1: 0.1 + 0.2, 2: 0.5}, {1: 0.3, 2: 0.5})
    assert (c.delta, c.interval, c.sd, c.p, c.seeds_needed, c.verdict) == (0.0, (0.0, 0.0), 0.0, 1.0, None, "no change detected")
    assert c.p_t == 1.0
    for part in ("is the same", "would have seen a change of 0.000"):
        assert part in sentence(c, "a", "b")


def test_no_change_needs_a_design_that_could_have_seen_the_effect():
    quiet = dict.fromkeys(range(8), 0.5)
    wobble = {seed: 0.5 + (0.01 if seed % 2 else -0.01) for seed in range(8)}
    c = compare(quiet, wobble)
    assert c.verdict == "no change detected"
    assert c.smallest_effect is not None
    assert c.smallest_effect < 0.05
    assert f"{c.smallest_effect:.3f} four times in five" in sentence(c, "a", "b")
    assert compare(quiet, wobble, min_effect=0.001).verdict == "unresolved"


def test_unmatched_seeds_use_welch_and_say_so():
    a, b = {1: 0.10, 2: 0.22, 3: 0.15}, {4: 0.35, 5: 0.41, 6: 0.38, 7: 0.33}
    c = compare(a, b)
    oracle = stats.ttest_ind(list(b.values()), list(a.values()), equal_var=False)
    assert c.interval == pytest.approx(tuple(oracle.confidence_interval()))
    assert c.p == pytest.approx(oracle.pvalue)
    assert (c.paired, c.n, c.per_seed, c.verdict) == (False, 3, {}, "moved")
    assert "not paired" in sentence(c, "b", "a")
    assert compare({1: 0.1}, {2: 0.3, 3: 0.4}).verdict == "unresolved"
    point = compare({1: 0.1, 2: 0.1}, {3: 0.3, 4: 0.3})
    assert (point.interval, point.verdict) == ((0.2, 0.2), "unresolved")


@pytest.mark.parametrize(
    ("baseline", "arm", "said"),
    [
        ({}, {1: 0.1}, "no runs"),
        ({1: math.nan}, {1: 0.1}, "seed 1.*finite"),
        ({1: 0.1}, {1: None}, "arm has score None"),
        ({1: 0.1}, {1: math.inf}, "finite"),
        ({1: 0.1}, {1: True}, "finite"),
        ({1: 0.1}, {1: "0.2"}, "finite"),
        ({17: 0.1, "17": 0.2}, {17: 0.1}, "seed 17 twice"),
        ({"a": 0.1}, {17: 0.1}, "whole numbers"),
        ({1.5: 0.1}, {17: 0.1}, "whole numbers"),
    ],
)
def test_bad_input_is_refused_with_a_reason(baseline, arm, said):
    with pytest.raises(CoterieError, match=said):
        compare(baseline, arm)


@pytest.mark.parametrize("bad", [{"alpha": 0.0}, {"alpha": 1.0}, {"min_effect": 0.0}, {"min_effect": math.nan}])
def test_bad_settings_are_refused(bad):
    with pytest.raises(CoterieError, match=next(iter(bad))):
        compare(OFF, CHAT, **bad)


def test_seeds_from_json_are_strings():
    assert compare({"17": 0.1, "18": np.float64(0.2)}, {17: 0.3, 18: 0.5}) == compare({17: 0.1, 18: 0.2}, {17: 0.3, 18: 0.5})


def test_row_survives_json():
    row = as_row(compare(OFF, CHAT), "chat", "off")
    assert json.loads(json.dumps(row, allow_nan=False)) == row
    assert row["sentence"].startswith("chat against off: unresolved.")
    assert json.dumps(as_row(compare({1: 0.1}, {1: 0.2}), "a", "b"), allow_nan=False)


@quick
@given(st.lists(st.tuples(score, score), min_size=2, max_size=8))
def test_agrees_with_scipy(pairs):
    baseline, arm = ({seed: pair[side] for seed, pair in enumerate(pairs)} for side in (0, 1))
    differences = np.round([b - a for a, b in pairs], 12)
    assume(len(set(differences)) > 1)  # the sd of equal ones is not 0 to the last bit
    c = compare(baseline, arm)
    student = stats.ttest_1samp(differences, 0)
    assert c.interval == pytest.approx(tuple(student.confidence_interval()), abs=1e-12)
    assert c.p_t == pytest.approx(student.pvalue, rel=1e-6)
    oracle = stats.permutation_test((differences,), np.mean, permutation_type="samples", n_resamples=math.inf, vectorized=True)
    assert c.p == pytest.approx(min(1.0, oracle.pvalue))
    assert c.p >= 2 / 2 ** len(pairs)


OPPOSITE = {"moved": "moved the wrong way", "moved the wrong way": "moved"}


@quick
@given(runs, runs)
def test_swapping_the_arms_flips_the_sign(a, b):
    there, back = compare(a, b), compare(b, a)
    assert there.delta == pytest.approx(-back.delta)
    assert there.verdict == OPPOSITE.get(back.verdict, back.verdict)
    assert (there.n, there.p, there.seeds_needed) == (back.n, pytest.approx(back.p), back.seeds_needed)
    if there.interval:
        assert there.interval == pytest.approx((-back.interval[1], -back.interval[0]))


@quick
@given(runs, runs, st.integers(-500, 500).map(lambda k: k / 1000))
def test_adding_a_constant_to_both_arms_changes_nothing(a, b, constant):
    plain = compare(a, b)
    moved = compare({s: v + constant for s, v in a.items()}, {s: v + constant for s, v in b.items()})
    assert (plain.verdict, plain.n, plain.seeds_needed) == (moved.verdict, moved.n, moved.seeds_needed)
    assert plain.delta == pytest.approx(moved.delta, abs=1e-9)
    if plain.interval:
        assert plain.interval == pytest.approx(moved.interval, abs=1e-9)


@quick
@given(runs, runs)
def test_a_clear_difference_that_is_not_significant_is_never_no_change(a, b):
    c = compare(a, b)
    if c.verdict == "no change detected":
        assert abs(c.delta) < c.min_effect
