"""Seeds needed and effects seen, against scipy's noncentral t, printed tables, and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from coterie.stats import power
from coterie.stats.intervals import t_interval

quick = settings(max_examples=40, deadline=None)  # no deadline: this runs on shared machines


@pytest.mark.parametrize("df", [1, 2, 4, 9, 30])
@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0, 4.0])
def test_power_is_the_noncentral_t(df, shift):
    bar = stats.t.ppf(0.975, df)
    oracle = stats.nct.sf(bar, df, shift) + stats.nct.cdf(-bar, df, shift)
    assert power.power_of_t(shift, df) == pytest.approx(oracle, abs=1e-5)
    assert power.power_of_t(-shift, df) == pytest.approx(power.power_of_t(shift, df))


@pytest.mark.parametrize("df", [1, 9, 1e7])
def test_power_is_finite_for_huge_effects(df):
    assert power.power_of_t(1e6, df) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("d", "n"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_seeds_for_power_matches_the_printed_tables(d, n):
    # One-sample t test, two-sided 0.05, power 0.8: the values of G*Power and R's power.t.test.
    assert power.seeds_for_power(d, 1.0) == n
    assert power.seeds_for_power(-d, 1.0) == n


@pytest.mark.parametrize(("d", "n"), [(0.5, 64), (0.8, 26), (1.0, 17)])
def test_unpaired_seeds_match_the_printed_tables(d, n):
    # Two-sample t test with equal variances, two-sided 0.05, power 0.8, in each arm: power.t.test.
    assert power.welch_seeds_for_power(d, (1.0, 1.0)) == n
    assert power.welch_seeds_for_power(-d, (1.0, 1.0)) == n
    assert power.welch_seeds_for_power(0.0, (1.0, 1.0)) is None
    assert power.welch_seeds_for_power(d, (0.0, 0.0)) == 2


@quick
@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_seeds_for_power_is_the_smallest(effect, sd):
    n = power.seeds_for_power(effect, sd)
    assert n is not None
    assert power.smallest_effect(n, sd) <= effect * (1 + 1e-6)
    assert n == 2 or power.smallest_effect(n - 1, sd) >= effect * (1 - 1e-6)


@quick
@given(st.floats(0.01, 5), st.floats(0.01, 5))
def test_seeds_for_significance_is_the_smallest_and_comes_first(effect, sd):
    n = power.seeds_for_significance(effect, sd)
    assert n is not None

    def excludes_zero(k):
        return effect > stats.t.ppf(0.975, k - 1) * sd / np.sqrt(k)

    assert excludes_zero(n)
    assert n == 2 or not excludes_zero(n - 1)
    assert n <= power.seeds_for_power(effect, sd)


def test_smallest_effect_is_seen_four_times_in_five():
    effect = power.smallest_effect(5, 0.14)
    rng = np.random.default_rng(11)
    seen = np.mean([low > 0 or high < 0 for low, high in map(t_interval, rng.normal(effect, 0.14, (4000, 5)))])
    assert seen == pytest.approx(0.8, abs=0.02)


def test_edges():
    assert power.seeds_for_power(0.0, 0.1) is None
    assert power.seeds_for_power(1e-9, 1.0) is None
    assert power.seeds_for_power(0.1, 0.0) == 2
    assert power.seeds_for_significance(0.0, 0.1) is None
    assert power.smallest_effect(1, 0.1) is None
    assert power.smallest_effect(4, 0.0) == 0.0
