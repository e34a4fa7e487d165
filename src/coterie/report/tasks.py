"""What the rewards of single episodes say, beyond their mean: where the spread comes from, and pass@k."""

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from coterie.stats.intervals import t_interval
from coterie.stats.passk import passes
from coterie.stats.variance import Components, Rewards, advice, differences, split, table
from coterie.types import CoterieError

ByArm = Mapping[str, Mapping[int, Rewards]]


def variance_rows(by_arm: ByArm, baseline: str) -> list[dict[str, Any]]:
    """A split of the variance for every arm, then for every paired difference from the baseline, as JSON-ready rows. An arm with
    too few seeds or tasks has `components` None and the reason in `sentence`."""
    named: dict[str, Mapping[int, Rewards]] = dict(by_arm)
    if baseline in by_arm:
        named |= {f"{arm} − {baseline}": differences(by_arm[baseline], of) for arm, of in by_arm.items() if arm != baseline}
    return [_variance_row(name, of) for name, of in named.items()]


def _variance_row(name: str, by_seed: Mapping[int, Rewards]) -> dict[str, Any]:
    try:
        rewards, left_out = table(by_seed)
        found = split(rewards)
    except CoterieError as error:
        return {"of": name, "components": None, "left_out": 0, "sentence": f"{name}: {error}"}
    components = {key: getattr(found, key) for key in ("seeds", "tasks", "episodes", "seed", "task", "seed_task", "sampling")}
    return {"of": name, "components": components, "left_out": left_out, "sentence": _said(name, found, left_out)}


def _said(name: str, found: Components, left_out: int) -> str:
    own, tasks, sampling = found.shares()
    parts = [f"{own:.0%} the seed's own"]
    parts += (
        [f"{tasks:.0%} tasks within a seed and sampling"]
        if sampling is None
        else [f"{tasks:.0%} tasks within a seed", f"{sampling:.0%} sampling"]
    )
    size = f"{found.seeds} seeds × {found.tasks:,} tasks × {found.episodes} episode{'s' * (found.episodes != 1)}"
    missing = f" {left_out} tasks are left out: not every seed has all their episodes graded." if left_out else ""
    return (
        f"{name} ({size}): between seeds sd {math.sqrt(found.between_seeds()):.4f}, of that variance {', '.join(parts)}. "
        f"{advice(found)} As many other tasks would move every seed together, by sd {math.sqrt(found.task / found.tasks):.4f}."
        f"{missing}"
    )


def pass_rows(by_arm: ByArm, k: int) -> list[dict[str, Any]]:
    """For every arm: k, seeds, and means over seeds of pass@1, pass@k and pass^k, each with its t interval over seeds (None below
    two). Raises `CoterieError` where a run has fewer than k episodes a task."""
    rows = []
    for arm, by_seed in by_arm.items():
        found = [passes(of, k) for _, of in sorted(by_seed.items())]
        values = {key: [getattr(one, key) for one in found] for key in ("pass_1", "pass_at_k", "pass_hat_k")}
        means = {key: {"mean": sum(of) / len(of), "interval": t_interval(of)} for key, of in values.items()}
        rows.append({"arm": arm, "k": k, "seeds": len(found), "left_out": sum(one.left_out for one in found), **means})
    return rows


def pass_table(rows: list[dict[str, Any]]) -> Table:
    """`pass_rows` as a table: the mean over seeds, and below it the 95 % interval over seeds."""
    shown = Table(header_style="bold", box=None, pad_edge=False)
    shown.add_column("arm", overflow="fold")
    shown.add_column("seeds", justify="right", no_wrap=True)
    k = rows[0]["k"] if rows else 1
    heads = {"pass_1": "pass@1"} | ({"pass_at_k": f"pass@{k}", "pass_hat_k": f"pass^{k}"} if k > 1 else {})
    for head in heads.values():
        shown.add_column(head, justify="right", no_wrap=True)
    for row in rows:
        shown.add_row(Text(row["arm"]), str(row["seeds"]), *(Text(_mean(row[key])) for key in heads))
    return shown


def _mean(of: Mapping[str, Any]) -> str:
    low, high = of["interval"] or (None, None)
    return f"{of['mean']:.3f}" + ("" if low is None else f"\n{low:.3f} to {high:.3f}")
