"""Reading `results.json`: small questions to a dictionary in which any measure may be missing or None."""

import math
from collections.abc import Mapping
from typing import Any

Results = Mapping[str, Any]


def number(value: Any) -> float | None:
    """A finite float, or None for everything else that a results file can hold in its place."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def mean(values: list[float | None]) -> float | None:
    """The mean of the values that are there; None when none is."""
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def arm_names(results: Results) -> list[str]:
    """Every arm, the baseline first and the others in the order of the file."""
    names = list(results.get("arms") or {})
    baseline = results.get("baseline")
    return sorted(names, key=lambda name: name != baseline)


def runs(results: Results, arm: str) -> dict[int, Mapping[str, Any]]:
    """Seed to run, in the order of the seeds."""
    seeds = ((results.get("arms") or {}).get(arm) or {}).get("seeds") or {}
    return {int(seed): seeds[seed] or {} for seed in sorted(seeds, key=int)}


def dig(run: Mapping[str, Any], *path: str) -> float | None:
    """The number at `path` inside nested dictionaries, or None when any step of it is missing."""
    here: Any = run
    for key in path:
        if not isinstance(here, Mapping):
            return None
        here = here.get(key)
    return number(here)


def arm_mean(results: Results, arm: str, *path: str) -> float | None:
    """The mean over the arm's seeds of the number at `path`; seeds without it are left out."""
    return mean([dig(run, *path) for run in runs(results, arm).values()])


def held_out_scores(results: Results, arm: str) -> dict[int, float]:
    """Seed to held-out score, for the seeds that have one."""
    scores = {seed: dig(run, "score") for seed, run in runs(results, arm).items()}
    return {seed: score for seed, score in scores.items() if score is not None}


def curves(results: Results) -> dict[str, dict[int, list[tuple[int, float | None]]]]:
    """Arm to seed to `(step, reward)`, the reward None where a step has none; runs without a curve are left out."""
    found: dict[str, dict[int, list[tuple[int, float | None]]]] = {}
    for arm in arm_names(results):
        of_arm = {s: [(int(at), number(reward)) for at, reward in run.get("curve") or []] for s, run in runs(results, arm).items()}
        found[arm] = {seed: curve for seed, curve in of_arm.items() if curve}
    return {arm: by_seed for arm, by_seed in found.items() if by_seed}


def worst_cut(run: Mapping[str, Any]) -> float | None:
    """The largest share of messages cut by their cap at any turn; the share over all turns if no turn is told apart; or None."""
    measures = run.get("measures") or {}
    by_turn = next((found for key in ("cut_by_turn", "cut") if isinstance(found := measures.get(key), Mapping)), {})
    there = [share for share in map(number, by_turn.values()) if share is not None]
    return max(there, default=number(measures.get("cut")))


def grading_errors(results: Results, arm: str) -> int:
    """How many held-out answers of the arm's runs the grader failed on, all seeds together."""
    return sum(int(dig(run, "grading_errors") or 0) for run in runs(results, arm).values())
