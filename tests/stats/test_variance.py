"""The split of the variance: a table by hand, known components by simulation, and the words."""

import numpy as np
import pytest

from coterie.stats.variance import Components, advice, differences, split, table
from coterie.types import CoterieError


def simulated(rng, seeds, tasks, episodes, seed=0.0, task=0.0, both=0.0, sampling=0.0):
    """A table of rewards with these standard deviations."""
    return (
        rng.normal(0, seed, (seeds, 1, 1))
        + rng.normal(0, task, (1, tasks, 1))
        + rng.normal(0, both, (seeds, tasks, 1))
        + rng.normal(0, sampling, (seeds, tasks, episodes))
    )


def test_by_hand():
    """2 seeds, 2 tasks, 2 episodes. Cells 1 2 / 5 10: seeds 1.5 and 7.5, tasks 3 and 6, mean 4.5, interaction -+1. Mean squares:
    seeds 4 * 18 = 72, tasks 4 * 4.5 = 18, interaction 2 * 4 = 8; sampling 4 * 2 * 0.25 / 4 = 0.5."""
    cells = np.array([[1.0, 2.0], [5.0, 10.0]])
    found = split(np.stack([cells - 0.5, cells + 0.5], axis=2))
    assert found.sampling == pytest.approx(0.5)
    assert found.seed_task == pytest.approx((8 - 0.5) / 2)
    assert found.task == pytest.approx((18 - 8) / 4)
    assert found.seed == pytest.approx((72 - 8) / 4)


@pytest.mark.parametrize("episodes", [1, 3])
def test_known_components_are_found_on_average(episodes):
    rng = np.random.default_rng(1)
    found = [split(simulated(rng, 6, 40, episodes, 0.1, 0.2, 0.15, 0.3)) for _ in range(400)]

    def mean(key):
        return np.mean([getattr(one, key) for one in found])

    assert mean("seed") == pytest.approx(0.01, rel=0.1)
    assert mean("task") == pytest.approx(0.04, rel=0.1)
    if episodes > 1:
        assert mean("seed_task") == pytest.approx(0.0225, rel=0.1)
        assert mean("sampling") == pytest.approx(0.09, rel=0.05)
    else:  # the two cannot be told apart
        assert mean("seed_task") == pytest.approx(0.0225 + 0.09, rel=0.05)
        assert found[0].sampling is None


def test_between_seeds_is_the_variance_of_the_seeds_scores():
    """What the interval over seeds is made of, also for a table of another size than the one it was estimated from."""
    found = Components(5, 40, 2, seed=0.01, task=0.5, seed_task=0.0225, sampling=0.09)
    rng = np.random.default_rng(2)
    for tasks, episodes in ((40, 2), (160, 2), (40, 8)):
        scores = simulated(rng, 8000, tasks, episodes, 0.1, 0.7, 0.15, 0.3).mean(axis=(1, 2))
        assert found.between_seeds(tasks, episodes) == pytest.approx(scores.var(ddof=1), rel=0.06)
    assert sum(found.shares()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("components", "said"),
    [
        ((0.01, 0.0001, 0.0001), "only more seeds"),
        ((0.0, 0.01, 0.5), "more episodes a task"),
        ((0.0, 0.5, 0.01), "more episodes do not"),
        ((0.0, 0.5, None), "several episodes"),
        ((0.0, 0.0, 0.0), "no spread"),
    ],
)
def test_advice_follows_the_largest_part(components, said):
    seed, both, sampling = components
    assert said in advice(Components(3, 50, 4, seed, 0.1, both, sampling))


def test_a_table_keeps_the_tasks_that_every_seed_has_in_full():
    full, holes = {"a": [1.0, 0.0], "b": [0.5, 0.5], "c": [1.0, 1.0]}, {"c": [0.0, 1.0], "a": [0.0, 0.0], "b": [None, 1.0]}
    rewards, left_out = table({18: holes, 17: full})
    assert (rewards.tolist(), left_out) == ([[[1.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]], 1)
    assert table({1: full, 2: {"a": [1.0]}})[0].shape == (2, 0, 2)


def test_differences_are_of_shared_seeds_and_tasks():
    base, arm = {1: {"a": [0.5, None], "b": [0.0, 0.0]}, 2: {"a": [1.0, 1.0]}}, {1: {"a": [1.0, 1.0]}, 3: {"a": [0.0, 0.0]}}
    assert differences(base, arm) == {1: {"a": [0.5, None]}}


@pytest.mark.parametrize("shape", [(1, 5, 2), (3, 1, 2), (3, 0, 2)])
def test_too_small_a_table_is_refused(shape):
    with pytest.raises(CoterieError, match="at least 2 seeds"):
        split(np.zeros(shape))
