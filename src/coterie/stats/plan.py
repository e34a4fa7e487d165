"""How many training seeds to buy: for significance, for power, or for a budget of minutes."""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import special

from coterie.stats.power import POWER, seeds_for_power, seeds_for_significance, smallest_effect
from coterie.types import CoterieError

MOST_SEEDS = 100_000
"""A schedule longer than this is not counted to its end."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Paired seeds for a true difference of `effect` when per-seed differences have standard deviation `sd` (score points).

    `for_significance` seeds give an interval without zero if exactly `effect` and `sd` are observed, which happens about every
    second time; `for_power` seeds give one with probability `power`. Both are for the strictest step of Holm's correction over
    `comparisons`, alpha / comparisons. None where no number of seeds would do.
    """

    sd: float
    effect: float
    alpha: float
    power: float
    comparisons: int
    for_significance: int | None
    for_power: int | None


def plan(sd: float, effect: float, *, alpha: float = 0.05, power: float = POWER, comparisons: int = 1) -> Plan:
    """Raises `CoterieError` for a value out of its range."""
    _check(sd, alpha, power, comparisons)
    if not (math.isfinite(effect) and effect != 0):
        raise CoterieError(f"The effect must be a number of score points other than 0, such as 0.05; it is {effect}.")
    each = alpha / comparisons
    known = (sd, effect, alpha, power, comparisons)
    return Plan(*known, seeds_for_significance(effect, sd, each), seeds_for_power(effect, sd, power, each))


def visible(n: int, sd: float, *, alpha: float = 0.05, power: float = POWER, comparisons: int = 1) -> float | None:
    """The smallest effect that `n` paired seeds see with probability `power`, at alpha / comparisons; None below two seeds."""
    _check(sd, alpha, power, comparisons)
    return smallest_effect(n, sd, power, alpha / comparisons)


def seeds_that_fit(minutes_by_arm: Sequence[float], minutes: float, workers: int = 1) -> int:
    """How many seeds of every arm are finished after `minutes`, when `workers` take runs in the order in which coterie plays them
    (all arms of a seed, then the next seed), a run of each arm taking as long as `minutes_by_arm` says. Stops at `MOST_SEEDS`."""
    if not minutes_by_arm or not all(math.isfinite(one) and one > 0 for one in minutes_by_arm):
        raise CoterieError("The minutes of a run must be above 0, for every arm; give --minutes-per-run.")
    if not (math.isfinite(minutes) and minutes > 0 and workers >= 1):
        raise CoterieError("A budget needs minutes above 0 and at least 1 worker.")
    free = [0.0] * workers
    for seed in range(MOST_SEEDS):
        for length in minutes_by_arm:
            end = heapq.heappop(free) + length
            if end > minutes * (1 + 1e-12):  # a budget of exactly n runs holds n runs
                return seed
            heapq.heappush(free, end)
    return MOST_SEEDS


def sd_range(sd: float, n: int, alpha: float = 0.05) -> tuple[float, float]:
    """Where the true standard deviation lies with confidence 1 - alpha, given `sd` from `n` >= 2 normal differences: with three
    seeds between half of it and six times it. Source: the chi-squared distribution of (n - 1) s² / sigma²."""
    low, high = (sd * math.sqrt((n - 1) / float(special.chdtri(n - 1, tail))) for tail in (alpha / 2, 1 - alpha / 2))
    return low, high


def _check(sd: float, alpha: float, power: float, comparisons: int) -> None:
    if not (math.isfinite(sd) and sd >= 0):
        raise CoterieError(f"The sd of per-seed differences must be a number of score points, 0 or more; it is {sd}.")
    if not 0 < alpha < 1:
        raise CoterieError(f"alpha must lie between 0 and 1, such as 0.05; it is {alpha}.")
    if not alpha < power < 1:
        raise CoterieError(f"The power must lie between alpha ({alpha}) and 1, such as 0.8; it is {power}.")
    if comparisons < 1:
        raise CoterieError(f"The number of comparisons must be 1 or more; it is {comparisons}.")
