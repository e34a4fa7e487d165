"""What each draw does to the expected gradient, exactly, on a bandit: all sequences of arms and rewards with their probabilities.

The bandit has two arms with Bernoulli rewards; the policy takes arm 1 with probability a = sigmoid(theta). Its score function is
arm - a, its chance of a reward p = (1 - a) q0 + a q1, and its policy gradient a (1 - a) (q1 - q0): these come from the textbook,
not from the code. Rewards pass through `team_mean` over the whole pool, as in training.
"""

import itertools
import math
from collections.abc import Iterator

import pytest

from coterie.credit.team_mean import team_mean
from coterie.draws.base import Draw
from coterie.draws.dynamic import DynamicDraw
from coterie.draws.fixed import FixedDraw
from coterie.draws.reinforce_ada import ReinforceAda
from coterie.types import Episode, Group, Message
from tests.fakes import task

BANDITS = {
    "good arm": (0.3, 0.1, 0.9),
    "bad arm": (0.3, 0.8, 0.25),
    "seldom solved": (0.1, 0.02, 0.3),
    "often solved": (0.6, 0.7, 0.97),
}
"""a, q0, q1."""


def solved(a, q0, q1):
    return (1 - a) * q0 + a * q1


def gradient(a, q0, q1):
    return a * (1 - a) * (q1 - q0)


def pools(draw: Draw, bandit) -> Iterator[tuple[float, list[int], list[int]]]:
    """Every pool that the draw can come to have for one task: its probability, arms and rewards."""
    a, q0, q1 = bandit
    open_pools = [(1.0, [], [], 0)]
    while open_pools:
        chance, arms, rewards, rounds = open_pools.pop()
        wanted = draw.more([rewards], rounds)
        if not wanted or not wanted[0]:
            yield chance, arms, rewards
            continue
        for news in itertools.product(((0, 0), (0, 1), (1, 0), (1, 1)), repeat=wanted[0]):
            p = math.prod((a if arm else 1 - a) * ((q1 if arm else q0) if r else 1 - (q1 if arm else q0)) for arm, r in news)
            open_pools.append((chance * p, arms + [arm for arm, _ in news], rewards + [r for _, r in news], rounds + 1))


def estimate(draw: Draw, arms, rewards, a) -> float:
    """The mean of advantage times score function over the kept episodes; 0 where none is kept."""
    episodes = tuple(
        Episode("t", i, {}, (Message("A", "policy", 0, True, (), (), (), "eos", "", 1.0, 0),), {}, float(r))
        for i, r in enumerate(rewards)
    )
    kept = list(draw.keep(rewards))
    if not kept:
        return 0.0
    advantages = team_mean(Group(task(), tuple(episodes[i] for i in kept), episodes))
    return sum(credit[0] * (arms[i] - a) for credit, i in zip(advantages, kept, strict=True)) / len(kept)


def expected(draw: Draw, bandit) -> float:
    return sum(chance * estimate(draw, arms, rewards, bandit[0]) for chance, arms, rewards in pools(draw, bandit))


ADA = {
    "spread": ReinforceAda(2, 3, "spread", 0.5, 1, 1),
    "balanced": ReinforceAda(3, 2, "balanced", 0.5, 1, 1),
    "positive": ReinforceAda(3, 2, "positive", 0.5, 2, 1),
}


@pytest.mark.parametrize("bandit", BANDITS.values(), ids=BANDITS)
@pytest.mark.parametrize("n", [2, 4])
def test_fixed_is_the_policy_gradient_but_for_a_factor_of_one_less_one_over_n(bandit, n):
    """The factor is the same for all tasks: it comes from a baseline that includes the episode itself."""
    assert expected(FixedDraw(n), bandit) == pytest.approx((1 - 1 / n) * gradient(*bandit), rel=1e-12)


@pytest.mark.parametrize("bandit", BANDITS.values(), ids=BANDITS)
@pytest.mark.parametrize("draw", ADA.values(), ids=ADA)
def test_reinforce_ada_keeps_the_sign_and_scales_by_how_often_the_task_is_solved(draw, bandit):
    """Its weight c is E[h (1 - m) / p + l m / (1 - p)] / kept, from the counts alone: another route to the same expectation."""
    p = solved(*bandit)
    weight = 0.0
    for chance, _, rewards in pools(draw, bandit):
        m, kept = sum(rewards) / len(rewards), [rewards[i] for i in draw.keep(rewards)]
        high, low = sum(kept), len(kept) - sum(kept)
        weight += chance * (high * (1 - m) / p + low * m / (1 - p)) / len(kept) if 0 < m < 1 else 0.0
    assert weight > 0
    assert expected(draw, bandit) == pytest.approx(weight * gradient(*bandit), rel=1e-9)


@pytest.mark.parametrize("draw", ADA.values(), ids=ADA)
def test_the_weight_of_reinforce_ada_depends_on_the_solve_rate_alone(draw):
    """Two bandits that are solved as often (0.34), with other arms and gradients of other sign and size, are weighed alike."""
    one, other = (0.3, 0.1, 0.9), (0.7, 0.55, 0.25)
    assert solved(*one) == pytest.approx(solved(*other))
    assert expected(draw, one) / gradient(*one) == pytest.approx(expected(draw, other) / gradient(*other), rel=1e-9)


def test_reinforce_ada_weighs_seldom_solved_tasks_more_than_fixed_does():
    """At p = 0.12 and 0.5, six episodes at most. The limit of the docstring, 1 / (2 p (1 - p)) - 1, is 3.73 and 1.0; with few
    rounds the ratio falls short of it. Fixed has a ratio of 1."""
    ada = ReinforceAda(2, 3, "spread", 0.5, 1, 1)

    def weight(draw, p):
        bandit = (p, 0.0, 1.0)
        return expected(draw, bandit) / gradient(*bandit)

    assert weight(FixedDraw(4), 0.12) / weight(FixedDraw(4), 0.5) == pytest.approx(1.0)
    assert 1.5 < weight(ada, 0.12) / weight(ada, 0.5) < 3.73


def test_in_large_balanced_pools_the_weight_is_the_slope_of_half_the_logit_less_p():
    """Two right and two wrong of a pool of 20,000: the average over their arms is worked out by hand, so nothing is sampled."""
    draw = ReinforceAda(20_000, 1, "balanced", 0.5, 2, 2)
    for p in (0.1, 0.3, 0.5):
        rewards = [1] * round(20_000 * p) + [0] * round(20_000 * (1 - p))
        kept = draw.keep(rewards)
        right = estimate(draw, rewards, rewards, p)  # arm 1 always pays and arm 0 never: the arm is the reward
        assert len(kept) == 4
        step = 1e-5
        slope = (
            (math.log((p + step) / (1 - p - step)) / 2 - (p + step)) - (math.log((p - step) / (1 - p + step)) / 2 - (p - step))
        ) / (2 * step)
        assert right / (p * (1 - p)) == pytest.approx(slope, rel=1e-6)


@pytest.mark.parametrize("bandit", BANDITS.values(), ids=BANDITS)
def test_dynamic_keeps_the_sum_and_divides_by_the_share_of_mixed_tasks(bandit):
    """P(kept) E[estimate | kept] is the fixed draw's expectation, for every task."""
    n = 4
    draw = DynamicDraw(n, 1)
    assert expected(draw, bandit) == pytest.approx((1 - 1 / n) * gradient(*bandit), rel=1e-12)
    kept = sum(chance for chance, _, rewards in pools(draw, bandit) if draw.keep(rewards))
    p = solved(*bandit)
    assert kept == pytest.approx(1 - p**n - (1 - p) ** n, rel=1e-12)
