"""Scores that others published by training seed, judged by our rule beside the verdict that they printed.

A file is a JSON object of recipes. Each has `seeds` (the training seeds, or how many), and tables from arm to scores in the order
of the seeds: `arms`, and any further table of the same shape (another cast, another measure). `published_delta` holds what was
printed: one object or a list of them with `baseline`, `arm`, `delta`, and where known `interval` and `verdict`. Other keys are
left alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from coterie.stats.compare import compare
from coterie.stats.comparison import Comparison, as_row
from coterie.stats.holm import corrected
from coterie.types import CoterieError

NOT_BY_SEED = ("base",)
"""Tables of other things than trained runs: repeated evaluations of the untrained model."""


@dataclass(frozen=True, slots=True)
class Printed:
    """A published comparison, as printed."""

    delta: float
    interval: tuple[float, float] | None
    verdict: str | None


@dataclass(frozen=True, slots=True)
class Judged:
    """One comparison of a file: `table` is "arms" or the name of a further table; `printed` is None where nothing was printed."""

    recipe: str
    table: str
    baseline: str
    arm: str
    ours: Comparison
    printed: Printed | None

    def row(self) -> dict[str, Any]:
        """As in `results.json`, with `recipe`, `table` and `printed` beside it."""
        named = self.arm if self.table == "arms" else f"{self.arm}, {self.table},"
        said = None
        if self.printed:
            interval = self.printed.interval
            said = {"delta": self.printed.delta, "interval": list(interval) if interval else None, "verdict": self.printed.verdict}
        row = as_row(self.ours, named, self.baseline) | {"arm": self.arm}
        return {"recipe": self.recipe, "table": self.table, **row, "printed": said}


def judge(file: Any, *, min_effect: float = 0.05) -> list[Judged]:
    """Every arm of every recipe against its baseline: the one of `published_delta`, else the first arm. The comparisons of one
    table are a family for Holm's correction. Raises `CoterieError` when a recipe has another shape, naming it."""
    if not isinstance(file, Mapping):
        raise CoterieError("A file of published scores holds one JSON object, from recipe to its scores.")
    recipes = {name: of for name, of in file.items() if isinstance(of, Mapping)}
    if not recipes:
        raise CoterieError("The file of published scores holds no recipe: an object with `seeds` and `arms`.")
    return [one for name, of in recipes.items() for one in _recipe(str(name), of, min_effect)]


def _recipe(name: str, of: Mapping[str, Any], min_effect: float) -> list[Judged]:
    seeds, arms = of.get("seeds"), of.get("arms")
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        seeds = list(range(1, seeds + 1))
    if not isinstance(seeds, list) or not seeds or not isinstance(arms, Mapping) or not arms:
        raise CoterieError(f"{name}: published scores need `seeds` (a list, or how many) and `arms` (arm to a score a seed).")
    odd = [arm for arm, scores in arms.items() if not _by_seed(scores, len(seeds))]
    if odd:
        raise CoterieError(f"{name}: arm {odd[0]} needs {len(seeds)} scores, one a seed, as finite numbers.")
    printed = of.get("published_delta", [])
    said = [one for one in (printed if isinstance(printed, list) else [printed]) if isinstance(one, Mapping)]
    baselines = {str(one.get("baseline")) for one in said} or {str(next(iter(arms)))}
    if len(baselines) > 1 or not baselines <= arms.keys():
        raise CoterieError(
            f"{name}: published_delta must name one baseline, which is one of the arms; it names {sorted(baselines)}."
        )
    found: list[Judged] = []
    for table, scores in of.items():
        if isinstance(scores, Mapping) and table not in NOT_BY_SEED:
            found += _table(name, table, scores, baselines.copy().pop(), seeds, said, min_effect)
    return found


def _table(
    recipe: str, table: str, scores: Mapping[str, Any], baseline: str, seeds: list[int], said: list[Any], min_effect: float
) -> list[Judged]:
    """The other arms of a table against the baseline; nothing for a table of something else."""
    by_seed = {arm: dict(zip(seeds, values, strict=True)) for arm, values in scores.items() if _by_seed(values, len(seeds))}
    if baseline not in by_seed:
        return []
    arms = [arm for arm in by_seed if arm != baseline]
    family = corrected([compare(by_seed[baseline], by_seed[arm], min_effect=min_effect) for arm in arms])
    printed = {one.get("arm"): _printed(recipe, one) for one in said} if table == "arms" else {}
    return [Judged(recipe, table, baseline, arm, ours, printed.get(arm)) for arm, ours in zip(arms, family, strict=True)]


def _by_seed(scores: Any, seeds: int) -> bool:
    return isinstance(scores, list) and len(scores) == seeds and all(_number(score) for score in scores)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _printed(recipe: str, one: Mapping[str, Any]) -> Printed:
    delta, interval, verdict = one.get("delta"), one.get("interval"), one.get("verdict")
    if not isinstance(delta, int | float) or not (interval is None or _by_seed(interval, 2)):
        raise CoterieError(f"{recipe}: published_delta needs a number `delta` and, if there is one, `interval` as two numbers.")
    return Printed(float(delta), (interval[0], interval[1]) if interval else None, None if verdict is None else str(verdict))
