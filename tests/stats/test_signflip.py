"""The sign-flip test: hand counts, its floor, and the sampled version against the exact one."""

import numpy as np
import pytest

from coterie.stats import signflip
from coterie.stats.signflip import sign_flip_p


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([0.365, 0.12, 0.3233], 2 / 8),  # only all plus and all minus reach the sum
        ([0.3, 0.2, -0.1], 4 / 8),  # |sum| >= 0.4 for +++, ++-, --+ and ---
        ([0.1, -0.1], 1.0),
        ([0.0, 0.0, 0.0], 1.0),
    ],
)
def test_by_hand(differences, p):
    assert sign_flip_p(differences)[0] == p


@pytest.mark.parametrize(("n", "floor"), [(3, 0.25), (5, 0.0625), (8, 0.0078125)])
def test_p_cannot_go_below_two_in_two_to_the_n(n, floor):
    p, method = sign_flip_p(list(np.linspace(0.3, 0.4, n)))
    assert p == floor
    assert f"all {2**n} assignments" in method


def test_twenty_is_exact_and_more_is_sampled_and_says_so():
    rng = np.random.default_rng(3)
    assert sign_flip_p(rng.normal(0.1, 0.2, 20))[1] == "sign flip, all 1,048,576 assignments"
    p, method = sign_flip_p(rng.normal(0.1, 0.2, 21))
    assert method == "sign flip, 100,000 sampled assignments (seed 0)"
    assert 0 < p < 1


def test_sampled_agrees_with_exact(monkeypatch):
    values = np.random.default_rng(5).normal(0.1, 0.3, 12)
    exact, _ = sign_flip_p(values)
    monkeypatch.setattr(signflip, "EXACT_UP_TO", 5)
    sampled, _ = sign_flip_p(values)
    assert sampled == pytest.approx(exact, abs=0.01)
    assert sampled == sign_flip_p(values)[0]
