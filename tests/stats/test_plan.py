"""The planner: scipy's noncentral t, schedules by hand, and the uncertainty of an sd."""

import math

import numpy as np
import pytest
from scipy import stats

from coterie.stats.plan import plan, sd_range, seeds_that_fit, visible
from coterie.types import CoterieError


def scipy_power(n, shift, alpha):
    bar = stats.t.ppf(1 - alpha / 2, n - 1)
    return stats.nct.sf(bar, n - 1, shift * math.sqrt(n)) + stats.nct.cdf(-bar, n - 1, shift * math.sqrt(n))


@pytest.mark.parametrize(("sd", "effect", "comparisons"), [(0.05, 0.05, 1), (0.05, 0.05, 4), (0.14, -0.08, 3)])
def test_the_numbers_are_the_smallest_by_scipy(sd, effect, comparisons):
    found = plan(sd, effect, comparisons=comparisons)
    alpha, shift = 0.05 / comparisons, abs(effect) / sd
    assert found.for_power == next(n for n in range(2, 500) if scipy_power(n, shift, alpha) >= 0.8)
    bars = {n: stats.t.ppf(1 - alpha / 2, n - 1) / math.sqrt(n) for n in range(2, 500)}
    assert found.for_significance == next(n for n, bar in bars.items() if bar < shift)
    assert found.for_significance <= found.for_power


def test_what_the_planned_seeds_see_is_the_effect_that_was_planned_for():
    found = plan(0.05, 0.04, comparisons=2)
    assert visible(found.for_power, 0.05, comparisons=2) <= 0.04 < visible(found.for_power - 1, 0.05, comparisons=2)
    assert visible(1, 0.05) is None


@pytest.mark.parametrize(
    ("arms", "minutes", "workers", "seeds"),
    [
        ([10, 10], 60, 1, 3),
        ([10, 10], 59, 1, 2),
        ([10, 10], 60, 2, 6),
        ([10, 10], 25, 3, 3),  # six runs in two rounds of three
        ([10, 10], 15, 3, 1),  # three at once: one whole seed, and half of another
        ([5, 20], 45, 2, 3),  # one worker: 0-5, 5-10, 10-30; the other: 0-20, 20-25, 25-45
        ([5, 20], 44, 2, 2),
        ([10], 9.9, 4, 0),
        ([0.1], 0.3, 1, 3),
    ],
)
def test_schedules_by_hand(arms, minutes, workers, seeds):
    assert seeds_that_fit(arms, minutes, workers) == seeds


def test_the_range_of_an_sd_holds_the_true_one():
    """Three seeds leave the sd open from half to six times of what was seen."""
    low, high = sd_range(1.0, 3)
    assert (low, high) == pytest.approx((0.521, 6.285), abs=1e-3)  # sqrt(2 / 7.378), sqrt(2 / 0.0506)
    samples = np.random.default_rng(3).normal(0, 0.2, (2000, 4)).std(axis=1, ddof=1)
    assert np.mean([low <= 0.2 <= high for low, high in (sd_range(sd, 4) for sd in samples)]) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"sd": -0.1}, "sd"),
        ({"sd": math.nan}, "sd"),
        ({"effect": 0.0}, "effect"),
        ({"alpha": 1.0}, "alpha"),
        ({"power": 0.01}, "power"),
        ({"power": 1.0}, "power"),
        ({"comparisons": 0}, "comparisons"),
    ],
)
def test_values_out_of_range_are_refused(bad, said):
    with pytest.raises(CoterieError, match=said):
        plan(**({"sd": 0.05, "effect": 0.05} | bad))


@pytest.mark.parametrize("bad", [([], 10, 1), ([0.0], 10, 1), ([5], 0, 1), ([5], 10, 0), ([5], math.inf, 1)])
def test_a_budget_out_of_range_is_refused(bad):
    with pytest.raises(CoterieError, match="minutes"):
        seeds_that_fit(*bad)
