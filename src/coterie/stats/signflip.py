"""The sign-flip test: were the differences as likely to have pointed the other way?"""

from collections.abc import Sequence

import numpy as np

EXACT_UP_TO = 20
"""With more differences than this, assignments are sampled instead of listed."""

_SAMPLES = 100_000


def sign_flip_p(differences: Sequence[float], *, seed: int = 0) -> tuple[float, str]:
    """Two-sided p of the mean difference under random signs, and how it was computed.

    Up to `EXACT_UP_TO` differences all 2^n assignments are counted, so p cannot go below 2 / 2^n (0.25 for 3 seeds, 0.0625 for 5,
    0.0078 for 8). Past that, 100,000 assignments drawn with `seed`, and p = (hits + 1) / (draws + 1) so that it is never zero.
    Source: Fisher (1935), The Design of Experiments, section 21; Phipson and Smyth (2010) for the added one.
    """
    values = np.asarray(differences, dtype=float)
    bar = abs(values.sum()) - 1e-12 * max(1.0, float(np.abs(values).sum()))  # sums in another order differ by rounding
    if len(values) <= EXACT_UP_TO:
        sums = np.zeros(1)
        for value in values:
            sums = np.concatenate([sums + value, sums - value])
        return float(np.mean(np.abs(sums) >= bar)), f"sign flip, all {len(sums):,} assignments"
    rng = np.random.default_rng(seed)
    hits = 0
    for start in range(0, _SAMPLES, 10_000):
        signs = rng.choice((-1.0, 1.0), size=(min(10_000, _SAMPLES - start), len(values)))
        hits += int(np.sum(np.abs(signs @ values) >= bar))
    return (hits + 1) / (_SAMPLES + 1), f"sign flip, {_SAMPLES:,} sampled assignments (seed {seed})"
