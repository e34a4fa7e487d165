"""pass@k and pass^k: every draw of k counted, unbiasedness over binomial counts, and the unit."""

from itertools import combinations
from math import comb

import pytest

from coterie.stats.passk import pass_at_k, pass_hat_k, passes
from coterie.types import CoterieError


@pytest.mark.parametrize("n", [1, 2, 5])
def test_every_draw_of_k_counted(n):
    for c in range(n + 1):
        outcomes = [True] * c + [False] * (n - c)
        for k in range(1, n + 1):
            draws = list(combinations(outcomes, k))
            assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, draws)) / len(draws))
            assert pass_hat_k(n, c, k) == pytest.approx(sum(map(all, draws)) / len(draws))


@pytest.mark.parametrize("p", [0.1, 0.5, 0.8])
def test_unbiased_where_plugging_in_is_not(p):
    n, k = 4, 3
    weight = [comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    assert sum(w * pass_at_k(n, c, k) for c, w in enumerate(weight)) == pytest.approx(1 - (1 - p) ** k)
    assert sum(w * pass_hat_k(n, c, k) for c, w in enumerate(weight)) == pytest.approx(p**k)
    assert sum(w * (c / n) ** k for c, w in enumerate(weight)) > p**k + 0.005


def test_the_mean_is_over_tasks_and_only_full_rewards_are_right():
    found = passes({"a": [1.0, 1.0, 0.0, 0.5], "b": [0.5, 0.5, 0.75, 0.0], "c": [1.0, 1.0, 1.0, 1.0]}, 2)
    assert found.pass_1 == pytest.approx((0.5 + 0 + 1) / 3)
    assert found.pass_at_k == pytest.approx((5 / 6 + 0 + 1) / 3)
    assert found.pass_hat_k == pytest.approx((1 / 6 + 0 + 1) / 3)
    assert (found.tasks, found.left_out) == (3, 0)


def test_tasks_with_too_few_graded_episodes_are_left_out_and_counted():
    found = passes({"a": [1.0, None, 0.0], "b": [1.0, None, None]}, 2)
    assert (found.pass_at_k, found.tasks, found.left_out) == (1.0, 1, 1)


@pytest.mark.parametrize(
    ("per_task", "k", "said"),
    [
        ({"a": [1.0]}, 2, "pass@2 .* which are 1"),
        ({"a": [1.0, 1.0]}, 0, "pass@0"),
        ({}, 1, "which are 0"),
        ({"a": [None, None]}, 1, "no task has 1 graded"),
    ],
)
def test_too_few_episodes_are_refused(per_task, k, said):
    with pytest.raises(CoterieError, match=said):
        passes(per_task, k)


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, 1, 4), (3, 1, 0), (3, -1, 1)])
def test_impossible_counts_are_refused(n, c, k):
    for estimate in (pass_at_k, pass_hat_k):
        with pytest.raises(CoterieError, match="pass@k needs"):
            estimate(n, c, k)
