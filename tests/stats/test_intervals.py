"""Intervals against scipy, their coverage by simulation, and the task bootstrap."""

import numpy as np
import pytest
from scipy import stats

from coterie.stats.intervals import t_interval, task_bootstrap, welch_interval
from coterie.types import CoterieError


def test_t_interval_by_hand():
    # mean 2, sd 1, n 3: 2 -+ 4.302653 / sqrt(3)
    assert t_interval([1.0, 2.0, 3.0]) == pytest.approx((2 - 2.484138, 2 + 2.484138), abs=1e-6)
    assert t_interval([1.0]) is None


@pytest.mark.parametrize("alpha", [0.01, 0.05, 0.2])
def test_intervals_agree_with_scipy(alpha):
    rng = np.random.default_rng(4)
    a, b = rng.normal(0, 1, 5), rng.normal(1, 3, 8)
    assert t_interval(a, alpha) == pytest.approx(tuple(stats.ttest_1samp(a, 0).confidence_interval(1 - alpha)))
    oracle = stats.ttest_ind(b, a, equal_var=False).confidence_interval(1 - alpha)
    assert welch_interval(a, b, alpha) == pytest.approx(tuple(oracle))
    assert welch_interval(a[:1], b) is None


@pytest.mark.parametrize("n", [3, 5, 8])
def test_t_interval_over_seeds_covers_95_percent(n):
    rng = np.random.default_rng(1000 + n)
    samples = rng.normal(0.1, 0.14, (4000, n))
    covered = np.mean([low <= 0.1 <= high for low, high in map(t_interval, samples)])
    assert covered == pytest.approx(0.95, abs=0.02)


def test_pooling_items_over_seeds_does_not_cover():
    # Why seeds are the unit: 300 items a run, a spread of four points between seeds, five seeds, all items thrown together.
    rng = np.random.default_rng(7)
    truth = 0.4 + rng.normal(0, 0.04, (2000, 5))
    scores = rng.binomial(300, truth) / 300
    pooled = scores.mean(axis=1)
    half = 1.96 * np.sqrt(pooled * (1 - pooled) / 1500)
    assert np.mean(np.abs(pooled - 0.4) <= half) < 0.8
    by_seed = np.mean([low <= 0.4 <= high for low, high in map(t_interval, scores)])
    assert by_seed == pytest.approx(0.95, abs=0.02)


def test_task_bootstrap_is_seeded_and_agrees_with_scipy():
    scores = np.random.default_rng(2).integers(0, 5, 300) / 4
    ours = task_bootstrap(scores)
    assert ours == task_bootstrap(scores)
    assert ours != task_bootstrap(scores, seed=1)
    assert (ours.tasks, ours.draws, ours.mean) == (300, 2000, pytest.approx(scores.mean()))
    oracle = stats.bootstrap((scores,), np.mean, method="percentile", n_resamples=5000, rng=np.random.default_rng(0))
    assert ours.interval == pytest.approx(tuple(oracle.confidence_interval), abs=0.004)


@pytest.mark.parametrize("bad", [[0.1, 0.2], [0.1, float("nan"), 0.3], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]])
def test_task_bootstrap_refuses_what_it_cannot_use(bad):
    with pytest.raises(CoterieError, match="task_bootstrap"):
        task_bootstrap(bad)
