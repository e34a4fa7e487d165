"""From values to pixels, and the round numbers on an axis."""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

Scale = Callable[[float], float]


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """A function from [low, high] to [start, end]."""
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers (steps of 1, 2 or 5 times a power of ten) in [low, high]: as many as `most` allows, at least two if any fit."""
    span = high - low
    if not span > 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(span / max(most, 1)))
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if span / (power * factor) <= most)
    return [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def written(value: float, values: Sequence[float], sign: bool = False) -> str:
    """A tick in the fewest decimals that tell all `values` apart."""
    gaps = [abs(b - a) for a, b in pairwise(values)] or [abs(value) or 1.0]
    decimals = max(0, -math.floor(math.log10(min(gaps)) + 1e-9))
    return (
        f"{value + 0.0:+,.{decimals}f}" if sign and abs(value) > 1e-12 else f"{abs(value) if value == 0 else value:,.{decimals}f}"
    )
