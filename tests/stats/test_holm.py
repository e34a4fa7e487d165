"""Holm's correction: a case by hand, what must hold for every family, and what it makes of verdicts."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from coterie.stats.compare import compare, sentence
from coterie.stats.holm import corrected, holm

BASE = {1: 0.30, 2: 0.34, 3: 0.31, 4: 0.36, 5: 0.33}
CLEAR = {1: 0.50, 2: 0.53, 3: 0.52, 4: 0.57, 5: 0.52}
SLIGHT = {1: 0.32, 2: 0.40, 3: 0.33, 4: 0.40, 5: 0.42}  # alone it moved: p = 0.022
NOTHING = {1: 0.28, 2: 0.36, 3: 0.29, 4: 0.38, 5: 0.32}


def test_by_hand():
    # 0.01 * 4 = 0.04; 0.02 * 3 = 0.06; 0.03 * 2 = 0.06; 0.9 * 1 = 0.9. The third has 0.05 * 2 = 0.10 below the largest so far.
    assert holm([0.03, 0.01, 0.9, 0.02]) == pytest.approx([0.06, 0.04, 0.9, 0.06])
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=7))
def test_between_no_correction_and_bonferroni_and_in_the_same_order(ps):
    adjusted = holm(ps)
    for p, q in zip(ps, adjusted, strict=True):
        assert p <= q <= min(1.0, len(ps) * p)
    assert sorted(range(len(ps)), key=lambda at: (adjusted[at], ps[at])) == sorted(range(len(ps)), key=lambda at: ps[at])


def test_any_false_discovery_happens_one_time_in_twenty():
    """Four arms that do nothing, against one baseline: they depend on each other through it."""
    rng = np.random.default_rng(9)
    base, arms = rng.normal(0, 1, (2000, 1, 5)), rng.normal(0, 1, (2000, 4, 5))
    p = stats.ttest_1samp(arms - base, 0, axis=2).pvalue
    assert np.mean((p <= 0.05).any(axis=1)) > 0.14
    assert np.mean([min(holm(row)) <= 0.05 for row in p]) == pytest.approx(0.05, abs=0.015)


def test_moved_alone_is_unresolved_among_four_and_says_so():
    alone = compare(BASE, SLIGHT)
    assert alone.verdict == "moved"
    family = corrected([alone, compare(BASE, CLEAR), compare(BASE, NOTHING), compare(BASE, NOTHING)])
    ps = [one.p_t for one in family]
    assert ps[0] == pytest.approx(stats.ttest_rel(list(SLIGHT.values()), list(BASE.values())).pvalue)
    assert family[0].p_holm == pytest.approx(3 * ps[0])
    assert [one.verdict for one in family] == ["unresolved", "moved", "no change detected", "no change detected"]
    assert family[0].interval == alone.interval
    assert family[0].seeds_to_settle > alone.seeds_to_settle
    text = sentence(family[0], "slight", "base")
    for part in ("slight against base: unresolved", "Alone it would be called moved; among 4 comparisons it is not", "Holm over 4"):
        assert part in text


def test_a_regression_is_corrected_as_a_gain_is():
    family = corrected([compare(SLIGHT, BASE), compare(BASE, NOTHING), compare(BASE, NOTHING)])
    assert family[0].verdict == "unresolved"
    assert "Alone it would be called moved the wrong way" in sentence(family[0], "a", "b")
    assert corrected([compare(CLEAR, BASE), compare(BASE, NOTHING)])[0].verdict == "moved the wrong way"


def test_a_family_of_one_changes_no_verdict():
    for arm in (CLEAR, SLIGHT, NOTHING):
        one = compare(BASE, arm)
        assert corrected([one]) == [replace(one, p_holm=one.p_t)]
    assert "Holm" not in sentence(corrected([compare(BASE, SLIGHT)])[0], "a", "b")


def test_one_seed_does_not_count_and_equal_differences_do():
    one_seed = compare({1: 0.1}, {1: 0.9})
    point = compare({1: 0.1, 2: 0.2}, {1: 0.3, 2: 0.4})
    first, lone, stuck = corrected([compare(BASE, SLIGHT), one_seed, point])
    assert lone == one_seed
    assert (first.family, stuck.p_holm, stuck.verdict) == (2, None, "unresolved")
    assert first.p_holm == pytest.approx(2 * first.p_t)


def test_unpaired_comparisons_are_corrected_by_welchs_p():
    a, b = {1: 0.10, 2: 0.22, 3: 0.15}, {4: 0.31, 5: 0.33, 6: 0.32, 7: 0.30}
    family = corrected([compare(a, b), compare(BASE, NOTHING), compare(BASE, NOTHING)])
    oracle = stats.ttest_ind(list(b.values()), list(a.values()), equal_var=False).pvalue
    assert 0.02 < oracle < 0.05
    assert family[0].p_holm == pytest.approx(3 * oracle)
    assert (family[0].verdict, compare(a, b).verdict) == ("unresolved", "moved")
    assert family[0].seeds_to_settle > compare(a, b).seeds_to_settle
