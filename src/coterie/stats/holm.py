"""Several comparisons of one recipe: with enough arms, one of them is bound to look as if it had moved.

With five arms that do nothing, held against one baseline at 5 % each, about one recipe in six would report a success. Holm's
step-down correction keeps the chance of any false "moved" at 5 % however the comparisons depend on each other, which they do (they
share a baseline and seeds), and is never weaker than Bonferroni's. It works on the t test's p: the sign-flip p cannot go below
2 / 2^n, so with three seeds it could never pass.

**The family** is all comparisons of one recipe by one metric, those with another arm than the baseline among them. The first metric
of a recipe carries its claim; the others are secondary, each corrected among its own. A comparison without an interval (one seed)
cannot be called moved and does not count.

**What is corrected** is the decision. The interval is that of the comparison alone, at 95 %; where it excludes zero and Holm's p
does not pass, the verdict is "unresolved", and the sentence says so. `seeds_to_settle` then is for the strictest step, alpha / N.

Source: Holm (1979), Scandinavian Journal of Statistics 6.
"""

from collections.abc import Sequence
from dataclasses import replace

from coterie.stats.comparison import Comparison
from coterie.stats.power import POWER, seeds_for_power, welch_seeds_for_power


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's adjusted p values, in the order of `ps`: reject where they are at most alpha."""
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for step, at in enumerate(sorted(range(len(ps)), key=lambda at: ps[at])):
        largest = max(largest, min(1.0, (len(ps) - step) * ps[at]))
        adjusted[at] = largest
    return adjusted


def corrected(family: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons of one family with `p_holm`, the family's size, and the verdicts and seeds that follow from them."""
    tested = [at for at, one in enumerate(family) if one.interval is not None]
    # Differences that agree to the last digit have no p and no verdict but count: which they are is known only from the data.
    ps = holm([1.0 if (p := family[at].p_t) is None else p for at in tested])
    found = list(family)
    for at, p in zip(tested, ps, strict=True):
        found[at] = _judged(family[at], None if family[at].p_t is None else p, len(tested))
    return found


def _judged(one: Comparison, p_holm: float | None, size: int) -> Comparison:
    fails = size > 1 and p_holm is not None and p_holm > one.alpha and one.verdict in ("moved", "moved the wrong way")
    return replace(
        one,
        p_holm=p_holm,
        family=size,
        verdict="unresolved" if fails else one.verdict,
        seeds_to_settle=_settle(one, one.alpha / size) if size > 1 else one.seeds_to_settle,
    )


def _settle(one: Comparison, alpha: float) -> int | None:
    effect = max(abs(one.delta), one.min_effect)
    if not one.paired:
        return welch_seeds_for_power(effect, one.variances, POWER, alpha)
    return None if one.sd is None else seeds_for_power(effect, one.sd, POWER, alpha)
