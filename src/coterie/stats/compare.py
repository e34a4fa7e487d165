"""Did an arm move the held-out score? One comparison over training seeds, and its verdict.

The unit of replication is the training seed: tasks, samples and messages of one run share that run's luck, and pooling them makes
an interval that covers far less than it says (Miller 2024, arXiv:2411.00640). Runs of two arms with the same seed saw the same
tasks in the same order from the same start, so they are compared pair by pair.

**The rule.** The t interval is the criterion. The sign-flip p stands beside it and decides nothing, because it cannot go below
2 / 2^n: with three seeds it is at least 0.25 however large the effect.

| what the seeds show | verdict |
|---|---|
| fewer than two pairs | unresolved |
| interval above zero | moved |
| interval below zero | moved the wrong way |
| interval covers zero, and this many seeds with this sd would have seen `min_effect` with 80 % power | no change detected |
| interval covers zero, and they would not have | unresolved, with the number of seeds that would settle it |
| interval excludes zero, but among N comparisons Holm's p is above 0.05 (`stats.holm`) | unresolved, and that is said |

Both scores are read as "higher is better". An observed difference of `min_effect` or more whose interval covers zero is always
unresolved, never "no change": an interval that wide is too wide to have seen `min_effect`.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from scipy import stats

from coterie.stats.comparison import Comparison, Verdict, as_row, sentence
from coterie.stats.equivalence import tost
from coterie.stats.intervals import Interval, t_interval, welch_error, welch_interval
from coterie.stats.power import POWER, detectable_shift, seeds_for_power, smallest_effect, welch_seeds_for_power
from coterie.stats.signflip import sign_flip_p
from coterie.types import CoterieError

__all__ = ["Comparison", "Verdict", "as_row", "compare", "sentence"]

_DECIMALS = 12  # differences of scores are rounded here, so that 0.1 + 0.2 - 0.3 is no difference at all


def compare(
    baseline: Mapping[int, float], arm: Mapping[int, float], *, alpha: float = 0.05, min_effect: float = 0.05
) -> Comparison:
    """Compare the held-out scores of two arms, each a mapping from training seed to the score of that run.

    `min_effect` is the smallest difference, in score points, that you would care about; state it before you look. Seeds that both
    arms have are paired; the others are left out and listed. Where too few are shared (see `pairs`), Welch's unpaired interval over
    all runs is used and `paired` is False. The verdict is that of this comparison alone; `holm.corrected` makes it hold among
    several. Raises `CoterieError` for an empty arm, a score that is missing or not finite, a seed that is not a whole
    number or that appears twice ("17" and 17), or an `alpha` or `min_effect` out of range.
    """
    if not 0 < alpha < 1:
        raise CoterieError(f"alpha must lie between 0 and 1 (0.05 for a 95 % interval); it is {alpha}.")
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise CoterieError(f"min_effect must be a positive number of score points, such as 0.05; it is {min_effect}.")
    base, other = _scores(baseline, "baseline"), _scores(arm, "arm")
    if not pairs(base, other):
        return _unpaired(list(base.values()), list(other.values()), alpha, min_effect)
    per_seed = {seed: round(other[seed] - base[seed], _DECIMALS) for seed in sorted(base.keys() & other.keys())}
    differences = list(per_seed.values())
    n, delta = len(differences), float(np.mean(differences))
    left_out = tuple(sorted(base.keys() ^ other.keys()))
    known: dict[str, Any] = {"alpha": alpha, "min_effect": min_effect, "delta": delta, "n": n, "paired": True}
    known |= {"per_seed": per_seed, "left_out": left_out}
    if n < 2:
        return Comparison(**known, p_method="none: one pair", verdict="unresolved")
    sd = float(np.std(differences, ddof=1)) if len(set(differences)) > 1 else 0.0
    interval = t_interval(differences, alpha) if sd > 0 else (delta, delta)
    visible = smallest_effect(n, sd, POWER, alpha)
    p, method = sign_flip_p(differences)
    return Comparison(
        **known,
        interval=interval,
        p=p,
        p_method=method,
        p_t=p_of_t(delta, sd / math.sqrt(n), n - 1),
        sd=sd,
        seeds_needed=seeds_for_power(delta, sd, POWER, alpha),
        seeds_to_settle=seeds_for_power(max(abs(delta), min_effect), sd, POWER, alpha),
        smallest_effect=visible,
        equivalence=tost(delta, sd / math.sqrt(n), n - 1, min_effect, alpha),
        verdict="unresolved" if sd == 0 and delta != 0 else _verdict(interval, visible, min_effect),
    )


def pairs(base: Collection[int], other: Collection[int]) -> bool:
    """Whether arms with these training seeds are compared pair by pair: they share two seeds or more, and at least half of either
    arm's. Otherwise pairing would throw away most runs. The rule looks at seeds only, never at scores. An arm of one seed is paired
    with what it shares, to show the difference; no test is possible."""
    shared, fewest, most = len(set(base) & set(other)), min(len(base), len(other)), max(len(base), len(other))
    return shared > 0 and (fewest < 2 or (shared >= 2 and 2 * shared >= most))


def p_of_t(delta: float, error: float, df: float) -> float | None:
    """Two-sided p of Student's t; 1 for no difference at all, and None for one without any spread, where t is undefined."""
    if error == 0:
        return 1.0 if delta == 0 else None
    return float(2 * stats.t.sf(abs(delta) / error, df))


def _unpaired(base: list[float], other: list[float], alpha: float, min_effect: float) -> Comparison:
    n, delta = min(len(base), len(other)), round(float(np.mean(other) - np.mean(base)), _DECIMALS)
    known: dict[str, Any] = {"alpha": alpha, "min_effect": min_effect, "delta": delta, "n": n, "paired": False}
    if n < 2:
        return Comparison(**known, p_method="none: an arm has one seed", verdict="unresolved")
    variances = tuple(float(np.var(side, ddof=1)) if len(set(side)) > 1 else 0.0 for side in (base, other))
    error, df = welch_error(base, other) if any(variances) else (0.0, float(len(base) + len(other) - 2))
    interval = welch_interval(base, other, alpha) if error > 0 else (delta, delta)
    visible = detectable_shift(df, POWER, alpha) * error
    p = p_of_t(delta, error, df)
    return Comparison(
        **known,
        interval=interval,
        p=0.0 if p is None else p,
        p_method="Welch's t test, unpaired",
        p_t=p,
        sd=math.sqrt(sum(variances)),
        variances=variances,
        seeds_needed=welch_seeds_for_power(delta, variances, POWER, alpha),
        seeds_to_settle=welch_seeds_for_power(max(abs(delta), min_effect), variances, POWER, alpha),
        smallest_effect=visible,
        equivalence=tost(delta, error, df, min_effect, alpha),
        verdict="unresolved" if error == 0 and delta != 0 else _verdict(interval, visible, min_effect),
    )


def _verdict(interval: Interval | None, visible: float | None, min_effect: float) -> Verdict:
    if interval is None or visible is None:
        return "unresolved"
    low, high = interval
    if low > 0:
        return "moved"
    if high < 0:
        return "moved the wrong way"
    return "no change detected" if visible <= min_effect else "unresolved"


def _scores(scores: Mapping[int, float], name: str) -> dict[int, float]:
    if not scores:
        raise CoterieError(f"The {name} has no runs to compare: it needs the held-out score of at least one training seed.")
    clean: dict[int, float] = {}
    for key, score in scores.items():
        try:
            seed = int(str(key))
        except ValueError:
            raise CoterieError(f"The {name} has a training seed {key!r}; seeds are whole numbers.") from None
        if seed in clean:
            raise CoterieError(f"The {name} has training seed {seed} twice; keep one run of each seed.")
        if isinstance(score, bool) or not isinstance(score, int | float | np.floating | np.integer) or not math.isfinite(score):
            raise CoterieError(
                f"The {name} has score {score!r} for training seed {seed}; it must be a finite number. "
                "Evaluate that run again, or leave its seed out of both arms and say so."
            )
        clean[seed] = float(score)
    return clean
