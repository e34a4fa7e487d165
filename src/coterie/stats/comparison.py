"""What a comparison found: its figures, the same in plain words, and as a row of `results.json`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.stats.intervals import Interval

Verdict = Literal["moved", "moved the wrong way", "no change detected", "unresolved"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm less a baseline, in score points (0.05 = five points of a hundred).

    `n` counts paired seeds; without any shared seed (`paired` False) it is the smaller arm's number of seeds. `sd` is the sample
    standard deviation of a per-seed difference (unpaired: the root of the summed variances). `seeds_needed` paired seeds would
    detect the observed `delta` with 80 % power (unpaired: seeds in each arm), None when that is undefined; `seeds_to_settle` would
    detect the larger of `delta` and `min_effect`, so that some verdict but "unresolved" becomes likely; `smallest_effect` is what
    these seeds would have seen with 80 % power.
    `left_out` holds seeds that only one arm has. `interval`, `p`, `sd` and the planning figures are None with too few seeds.
    """

    delta: float
    interval: Interval | None
    p: float | None
    p_method: str
    n: int
    paired: bool
    per_seed: Mapping[int, float]
    sd: float | None
    seeds_needed: int | None
    seeds_to_settle: int | None
    smallest_effect: float | None
    min_effect: float
    alpha: float
    verdict: Verdict
    left_out: tuple[int, ...] = field(default=())


def sentence(comparison: Comparison, arm: str, baseline: str) -> str:
    """The verdict with its figures, for example "chat against off: unresolved. The score is higher by 0.269, ..."."""
    c = comparison
    parts = [f"{arm} against {baseline}: {c.verdict}.", _figures(c), _meaning(c)]
    if not c.paired:
        parts.append("No training seed is shared, so the runs are not paired: the interval is Welch's.")
    if c.left_out:
        parts.append(f"Left out, for want of a partner: seed{'s' * (len(c.left_out) > 1)} {', '.join(map(str, c.left_out))}.")
    return " ".join(part for part in parts if part)


def as_row(comparison: Comparison, arm: str, baseline: str) -> dict[str, Any]:
    """The comparison as a JSON-ready dictionary, an entry of `comparisons` in `results.json`; seeds become strings."""
    c = comparison
    return {
        "arm": arm,
        "baseline": baseline,
        "delta": c.delta,
        "interval": list(c.interval) if c.interval else None,
        "alpha": c.alpha,
        "p": c.p,
        "p_method": c.p_method,
        "n": c.n,
        "paired": c.paired,
        "per_seed": {str(seed): delta for seed, delta in c.per_seed.items()},
        "left_out": list(c.left_out),
        "sd": c.sd,
        "seeds_needed": c.seeds_needed,
        "seeds_to_settle": c.seeds_to_settle,
        "smallest_effect": c.smallest_effect,
        "min_effect": c.min_effect,
        "verdict": c.verdict,
        "sentence": sentence(c, arm, baseline),
    }


def _figures(c: Comparison) -> str:
    way = "is the same" if c.delta == 0 else f"is {'higher' if c.delta > 0 else 'lower'} by {abs(c.delta):.3f}"
    seeds = f"{c.n} paired seed{'s' * (c.n != 1)}" if c.paired else f"{c.n} seed{'s' * (c.n != 1)} in the smaller arm"
    if c.interval is None:
        return f"The score {way} with {seeds}; no interval can be drawn."
    low, high = c.interval
    level = f"{100 * (1 - c.alpha):g} %"
    return f"The score {way} ({level} interval {low:+.3f} to {high:+.3f}, {seeds}, {c.p_method}: p = {c.p:.2g})."


def _meaning(c: Comparison) -> str:
    if c.interval is None:
        return "Train at least two seeds in both arms; three or more give an interval that can be of use."
    if c.sd == 0:
        same = "this difference" if c.delta else "the same score in both arms"
        return f"Every seed gave exactly {same}, so the interval is a point; check that the runs really differ."
    if c.verdict == "no change detected":
        return f"These seeds would have seen a change of {c.smallest_effect:.3f} four times in five."
    if c.verdict == "unresolved":
        seen = f"These seeds could only have seen a change of {c.smallest_effect:.3f} or more"
        if c.seeds_to_settle is None:
            return f"{seen}, and no practical number of seeds would settle it."
        where = "" if c.paired else " in each arm"
        return f"{seen}; if the spread stays the same, about {c.seeds_to_settle:,} seeds{where} would settle it."
    return ""
