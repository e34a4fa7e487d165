"""What a comparison found: its figures, the same in plain words, and as a row of `results.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.stats.equivalence import Equivalence
from coterie.stats.intervals import Interval

Verdict = Literal["moved", "moved the wrong way", "no change detected", "unresolved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """An arm less a baseline, in score points (0.05 = five points of a hundred).

    `n` counts paired seeds; where the runs are not paired (`paired` False) it is the smaller arm's number of seeds. `sd` is the
    sample standard deviation of a per-seed difference (unpaired: the root of the summed `variances` of the arms).

    `p` with its `p_method` stands beside the interval; `p_t` is the two-sided t test's, which agrees with the interval, and
    `p_holm` the same corrected for the `family` of comparisons that it was made among (`stats.holm`; a family of 1 until then).

    `seeds_needed` paired seeds would detect the observed `delta` with 80 % power (unpaired: seeds in each arm), None when that is
    undefined; `seeds_to_settle` would detect the larger of `delta` and `min_effect`, among the whole family, so that some verdict
    but "unresolved" becomes likely; `smallest_effect` is what these seeds would have seen with 80 % power, alone.

    `left_out` holds seeds that only one arm has. `interval`, the p values, `sd`, the planning figures and `equivalence` (against a
    margin of `min_effect`) are None with too few seeds; `p_t` and `equivalence` also where all differences are the same.
    """

    delta: float
    n: int
    paired: bool
    min_effect: float
    alpha: float
    verdict: Verdict
    p_method: str
    interval: Interval | None = None
    p: float | None = None
    p_t: float | None = None
    p_holm: float | None = None
    family: int = 1
    per_seed: Mapping[int, float] = field(default_factory=dict)
    sd: float | None = None
    variances: tuple[float, ...] = ()
    seeds_needed: int | None = None
    seeds_to_settle: int | None = None
    smallest_effect: float | None = None
    equivalence: Equivalence | None = None
    left_out: tuple[int, ...] = ()


def sentence(comparison: Comparison, arm: str, baseline: str) -> str:
    """The verdict with its figures, for example "chat against off: unresolved. The score is higher by 0.269, ..."."""
    c = comparison
    parts = [f"{arm} against {baseline}: {c.verdict}.", _figures(c), _meaning(c), _no_worse(c)]
    if not c.paired:
        parts.append("The training seeds do not match, so the runs are not paired: the interval is Welch's.")
    if c.left_out:
        parts.append(f"Left out, for want of a partner: seed{'s' * (len(c.left_out) > 1)} {', '.join(map(str, c.left_out))}.")
    return " ".join(part for part in parts if part)


def as_row(comparison: Comparison, arm: str, baseline: str) -> dict[str, Any]:
    """The comparison as a JSON-ready dictionary, an entry of `comparisons` in `results.json`; seeds become strings."""
    c, e = comparison, comparison.equivalence
    return {
        "arm": arm,
        "baseline": baseline,
        "delta": c.delta,
        "interval": list(c.interval) if c.interval else None,
        "alpha": c.alpha,
        "p": c.p,
        "p_method": c.p_method,
        "p_t": c.p_t,
        "p_holm": c.p_holm,
        "family": c.family,
        "n": c.n,
        "paired": c.paired,
        "per_seed": {str(seed): delta for seed, delta in c.per_seed.items()},
        "left_out": list(c.left_out),
        "sd": c.sd,
        "seeds_needed": c.seeds_needed,
        "seeds_to_settle": c.seeds_to_settle,
        "smallest_effect": c.smallest_effect,
        "min_effect": c.min_effect,
        "equivalence": None
        if e is None
        else {
            "margin": e.margin,
            "interval": list(e.interval),
            "p_no_worse": e.p_no_worse,
            "no_worse": e.no_worse,
            "p_equivalent": max(e.p_no_worse, e.p_no_better),
            "equivalent": e.equivalent,
        },
        "verdict": c.verdict,
        "sentence": sentence(c, arm, baseline),
    }


def _figures(c: Comparison) -> str:
    way = "is the same" if c.delta == 0 else f"is {'higher' if c.delta > 0 else 'lower'} by {abs(c.delta):.3f}"
    seeds = f"{c.n} paired seed{'s' * (c.n != 1)}" if c.paired else f"{c.n} seed{'s' * (c.n != 1)} in the smaller arm"
    if c.interval is None or c.p is None:
        return f"The score {way} with {seeds}; no interval can be drawn."
    low, high = c.interval
    said = [f"{100 * (1 - c.alpha):g} % interval {low:+.3f} to {high:+.3f}", seeds]
    if c.paired and c.p_t is not None:
        said.append(f"t test: p = {c.p_t:.2g}")
    if c.family > 1 and c.p_holm is not None:
        said.append(f"Holm over {c.family} comparisons: p = {c.p_holm:.2g}")
    said.append(f"{c.p_method}: p = {c.p:.2g}")
    return f"The score {way} ({'; '.join(said)})."


def _meaning(c: Comparison) -> str:
    if c.interval is None:
        return "Train at least two seeds in both arms; three or more give an interval that can be of use."
    if c.sd == 0:
        same = "this difference" if c.delta else "the same score in both arms"
        seen = f"; by this spread they would have seen a change of {c.smallest_effect:.3f}" if c.delta == 0 else ""
        return f"Every seed gave exactly {same}, so the interval is a point{seen}; check that the runs really differ."
    if c.verdict == "no change detected":
        return f"These seeds would have seen a change of {c.smallest_effect:.3f} four times in five."
    if c.verdict == "unresolved":
        low, high = c.interval
        if low > 0 or high < 0:
            alone = "moved" if low > 0 else "moved the wrong way"
            seen = f"Alone it would be called {alone}; among {c.family} comparisons it is not"
        else:
            seen = f"These seeds could only have seen a change of {c.smallest_effect:.3f} or more"
        if c.seeds_to_settle is None:
            return f"{seen}, and no practical number of seeds would settle it."
        where = "" if c.paired else " in each arm"
        return f"{seen}; if the spread stays the same, about {c.seeds_to_settle:,} seeds{where} would settle it."
    return ""


def _no_worse(c: Comparison) -> str:
    """The claim that a small difference allows: no worse than, or the same as, within the smallest effect that matters."""
    e = c.equivalence
    if e is None or abs(c.delta) >= e.margin:
        return ""
    low, high = e.interval
    level = f"({100 * (1 - 2 * e.alpha):g} % interval {low:+.3f} to {high:+.3f})"
    if e.equivalent:
        return f"Shown: no worse by {e.margin:g}, and the same within {e.margin:g} {level}."
    if e.no_worse and c.verdict != "moved":
        return f"Shown: no worse by {e.margin:g}; not shown: the same within {e.margin:g} {level}."
    return f"Not shown: no worse by {e.margin:g} {level}." if c.verdict == "no change detected" else ""
