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

Both scores are read as "higher is better". An observed difference of `min_effect` or more whose interval covers zero is always
unresolved, never "no change": an interval that wide is too wide to have seen `min_effect`.
"""

import math
from collections.abc import Mapping

import numpy as np
from scipy import stats

from coterie.stats.comparison import Comparison, Verdict, as_row, sentence
from coterie.stats.intervals import Interval, t_interval, welch_error, welch_interval
from coterie.stats.power import POWER, detectable_shift, power_of_t, seeds_for_power, smallest_effect, smallest_n
from coterie.stats.signflip import sign_flip_p
from coterie.types import CoterieError

__all__ = ["Comparison", "Verdict", "as_row", "compare", "sentence"]

_DECIMALS = 12  # differences of scores are rounded here, so that 0.1 + 0.2 - 0.3 is no difference at all


def compare(
    baseline: Mapping[int, float], arm: Mapping[int, float], *, alpha: float = 0.05, min_effect: float = 0.05
) -> Comparison:
    """Compare the held-out scores of two arms, each a mapping from training seed to the score of that run.

    `min_effect` is the smallest difference, in score points, that you would care about; state it before you look. Seeds that both
    arms have are paired; the others are left out and listed. When no seed is shared, Welch's unpaired interval is used and
    `paired` is False. Raises `CoterieError` for an empty arm, a score that is missing or not finite, a seed that is not a whole
    number or that appears twice ("17" and 17), or an `alpha` or `min_effect` out of range.
    """
    if not 0 < alpha < 1:
        raise CoterieError(f"alpha must lie between 0 and 1 (0.05 for a 95 % interval); it is {alpha}.")
    if not (math.isfinite(min_effect) and min_effect > 0):
        raise CoterieError(f"min_effect must be a positive number of score points, such as 0.05; it is {min_effect}.")
    base, other = _scores(baseline, "baseline"), _scores(arm, "arm")
    shared = sorted(base.keys() & other.keys())
    if not shared:
        return _unpaired(list(base.values()), list(other.values()), alpha, min_effect)
    per_seed = {seed: round(other[seed] - base[seed], _DECIMALS) for seed in shared}
    differences = list(per_seed.values())
    n, delta = len(shared), float(np.mean(differences))
    left_out = tuple(sorted(base.keys() ^ other.keys()))
    if n < 2:
        nothing = (None, None, "none: one pair", n, True, per_seed, None, None, None, None)
        return Comparison(delta, *nothing, min_effect, alpha, "unresolved", left_out)
    sd = float(np.std(differences, ddof=1)) if len(set(differences)) > 1 else 0.0
    interval = t_interval(differences, alpha) if sd > 0 else (delta, delta)
    p, method = sign_flip_p(differences)
    needed = seeds_for_power(delta, sd, POWER, alpha)
    settle = seeds_for_power(max(abs(delta), min_effect), sd, POWER, alpha)
    visible = smallest_effect(n, sd, POWER, alpha)
    verdict = "unresolved" if sd == 0 and delta != 0 else _verdict(interval, visible, min_effect)
    return Comparison(
        delta, interval, p, method, n, True, per_seed, sd, needed, settle, visible, min_effect, alpha, verdict, left_out
    )


def _unpaired(base: list[float], other: list[float], alpha: float, min_effect: float) -> Comparison:
    n, delta = min(len(base), len(other)), round(float(np.mean(other) - np.mean(base)), _DECIMALS)
    if n < 2:
        nothing = (None, None, "none: an arm has one seed", n, False, {}, None, None, None, None)
        return Comparison(delta, *nothing, min_effect, alpha, "unresolved")
    variances = [float(np.var(side, ddof=1)) if len(set(side)) > 1 else 0.0 for side in (base, other)]
    sd = math.sqrt(sum(variances))
    if sd == 0:
        interval, p, visible = (delta, delta), (1.0 if delta == 0 else 0.0), 0.0
    else:
        interval = welch_interval(base, other, alpha)
        error, df = welch_error(base, other)
        p = float(2 * stats.t.sf(abs(delta) / error, df))
        visible = detectable_shift(df, POWER, alpha) * error
    needed = _welch_seeds(delta, variances, alpha)
    settle = _welch_seeds(max(abs(delta), min_effect), variances, alpha)
    verdict = "unresolved" if sd == 0 and delta != 0 else _verdict(interval, visible, min_effect)
    return Comparison(
        delta, interval, p, "Welch's t test, unpaired", n, False, {}, sd, needed, settle, visible, min_effect, alpha, verdict
    )


def _welch_seeds(effect: float, variances: list[float], alpha: float) -> int | None:
    """Seeds in each of two arms of equal size at which Welch's interval excludes zero with 80 % power; None for no effect."""
    total = sum(variances)
    if effect == 0:
        return None
    if total == 0:
        return 2
    freedom = 1 / sum((part / total) ** 2 for part in variances)  # between 1 and 2, times n - 1

    def enough(n: int) -> bool:
        return power_of_t(effect / math.sqrt(total / n), (n - 1) * freedom, alpha) >= POWER

    return smallest_n(enough)


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
