"""How many seeds a paired comparison needs, and what a given number of seeds can see.

Everything here is about Student's t test on per-seed differences: `sd` is the sample standard deviation of those differences and
`effect` a mean difference, both in score points (0.05 is five points of a hundred). Power is two-sided: the probability that the
t interval excludes zero when the true mean difference is `effect` and the true standard deviation is `sd`. With few seeds, `sd` is
itself a rough guess, and so is every number of seeds computed from it.

Source: the noncentral t distribution; Cohen (1988), Statistical Power Analysis for the Behavioral Sciences, chapter 2.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from scipy import special

POWER = 0.8
"""The conventional chance of seeing an effect that is there."""

MAX_SEEDS = 10**9
"""Searches stop here: an effect that needs more seeds than this is reported as None, like an effect of zero."""


def t_critical(df: float, alpha: float = 0.05) -> float:
    """The two-sided critical value of Student's t with `df` degrees of freedom (4.303 for df = 2, alpha = 0.05)."""
    return float(special.stdtrit(df, 1 - alpha / 2))


@cache
def _nodes() -> tuple[np.ndarray, np.ndarray]:
    points, weights = np.polynomial.legendre.leggauss(400)
    return (points + 1) / 2, weights / 2


def power_of_t(noncentrality: float, df: float, alpha: float = 0.05) -> float:
    """The probability that a two-sided t test rejects, with `noncentrality` = true difference / its standard error.

    Given the sample sd the t statistic is normal, so power is a normal tail averaged over the sd's chi distribution, here by
    quadrature over its quantiles: right to 1e-6, and finite everywhere, where scipy's noncentral t returns NaN for large effects.
    """
    quantiles, weights = _nodes()
    ratio = np.sqrt(special.chdtri(df, 1 - quantiles) / df)  # sample sd / true sd
    bar = t_critical(df, alpha) * ratio
    return float(weights @ (special.ndtr(noncentrality - bar) + special.ndtr(-noncentrality - bar)))


def detectable_shift(df: float, power: float = POWER, alpha: float = 0.05) -> float:
    """The smallest difference, in units of its standard error, that a t test with `df` sees with probability `power`."""
    high = 1.0
    while power_of_t(high, df, alpha) < power:
        high *= 2
    low = 0.0
    while high - low > 1e-9 * high:  # bisection: power grows with the shift
        middle = (low + high) / 2
        low, high = (middle, high) if power_of_t(middle, df, alpha) < power else (low, middle)
    return high


def smallest_effect(n: int, sd: float, power: float = POWER, alpha: float = 0.05) -> float | None:
    """The smallest mean difference that `n` paired seeds would see with probability `power`; None with fewer than two seeds."""
    if n < 2:
        return None
    return detectable_shift(n - 1, power, alpha) * sd / math.sqrt(n)


def seeds_for_significance(effect: float, sd: float, alpha: float = 0.05) -> int | None:
    """The smallest number of paired seeds at which a t interval with exactly this mean and sd excludes zero.

    A repetition would pass this bar only about every second time; plan with `seeds_for_power`. None when the effect is zero.
    """
    return _seeds(effect, sd, lambda n: t_critical(n - 1, alpha) * sd < abs(effect) * math.sqrt(n))


def seeds_for_power(effect: float, sd: float, power: float = POWER, alpha: float = 0.05) -> int | None:
    """The smallest number of paired seeds at which the t interval excludes zero with probability `power`.

    None when the effect is zero, or so small that more than `MAX_SEEDS` seeds would be needed.
    """
    return _seeds(effect, sd, lambda n: power_of_t(effect / sd * math.sqrt(n), n - 1, alpha) >= power)


def welch_seeds_for_power(effect: float, variances: Sequence[float], power: float = POWER, alpha: float = 0.05) -> int | None:
    """Seeds in each of two unpaired arms of equal size at which Welch's interval excludes zero with probability `power`, given the
    variance of a seed's score in either arm; None for no effect."""
    total = sum(variances)
    if effect == 0:
        return None
    if total == 0:
        return 2
    freedom = 1 / sum((part / total) ** 2 for part in variances)  # between 1 and 2, times n - 1

    def enough(n: int) -> bool:
        return power_of_t(effect / math.sqrt(total / n), (n - 1) * freedom, alpha) >= power

    return smallest_n(enough)


def _seeds(effect: float, sd: float, enough: Callable[[int], bool]) -> int | None:
    if effect == 0:
        return None
    return 2 if sd == 0 else smallest_n(enough)


def smallest_n(enough: Callable[[int], bool]) -> int | None:
    """The smallest n >= 2 for which `enough(n)` holds, given that it then holds for every larger n; None past `MAX_SEEDS`."""
    high = 2
    while not enough(high):
        if high > MAX_SEEDS:
            return None
        high *= 2
    low = max(2, high // 2)
    while low < high:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle + 1
    return high
