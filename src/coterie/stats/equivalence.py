"""Is an arm no worse, or no different, by more than a margin? A null result is often the claim, and needs a test of its own.

"No change detected" only says that nothing was seen by a design that would have seen `min_effect` four times in five. The tests
here turn the burden of proof round: the null hypothesis is that the arms do differ by the margin, and the data have to refute it.

* **no worse** (non-inferiority): one-sided t test of difference <= -margin.
* **equivalent**: that test and the one of difference >= margin, both at `alpha` (TOST). It passes exactly when the interval with
  confidence 1 - 2 alpha, 90 % for the usual 5 %, lies within -margin and margin.

Failing to refute shows nothing: it is said as "not shown", never as "worse".

Source: Schuirmann (1987), J. Pharmacokinetics and Biopharmaceutics 15; Lakens (2017), Social Psychological and Personality Science
8.
"""

import math
from dataclasses import dataclass

from scipy import special

from coterie.stats.intervals import Interval
from coterie.stats.power import t_critical
from coterie.types import CoterieError


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Two one-sided tests against `margin` (score points, above zero), and the interval of confidence 1 - 2 alpha that says the
    same. `p_no_worse` is of the null hypothesis "worse by the margin or more", `p_no_better` of "better by the margin or more"."""

    margin: float
    alpha: float
    interval: Interval
    p_no_worse: float
    p_no_better: float

    @property
    def no_worse(self) -> bool:
        return self.p_no_worse <= self.alpha

    @property
    def equivalent(self) -> bool:
        return max(self.p_no_worse, self.p_no_better) <= self.alpha


def tost(delta: float, error: float, df: float, margin: float, alpha: float = 0.05) -> Equivalence | None:
    """Both tests for a mean difference `delta` with standard error `error` on `df` degrees of freedom (paired: seeds less one).

    None for an error of zero: seeds that agree exactly leave nothing to judge the difference by. Raises `CoterieError` for a margin
    that is not a positive number.
    """
    if not (math.isfinite(margin) and margin > 0):
        raise CoterieError(f"The margin of an equivalence test must be a positive number of score points; it is {margin}.")
    if error <= 0:
        return None
    half = t_critical(df, 2 * alpha) * error
    no_worse, no_better = (float(special.stdtr(df, -(margin + way * delta) / error)) for way in (1, -1))
    return Equivalence(margin, alpha, (delta - half, delta + half), no_worse, no_better)
