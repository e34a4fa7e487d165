"""pass@k and pass^k: is one of k answers right, and are all k?

For a task with c right ones of n episodes, pass@k is estimated by 1 - C(n - c, k) / C(n, k), the chance that k of the n, drawn
without replacement, hold a right one, and pass^k by C(c, k) / C(n, k), the chance that all k are right. Both are unbiased for
independent episodes; plugging c / n into 1 - (1 - p)^k and p^k is not (by simulation, docs/statistics.md).

The unit: an estimate a task, the mean over tasks for a run, and then the seed as everywhere: mean and t interval over runs.
Episodes are never pooled over tasks or seeds. An episode is right when its team reward is 1: partly right teams are not right.

Source: Chen et al. (2021), arXiv:2107.03374, equation 1; pass^k: Yao et al. (2024), tau-bench, arXiv:2406.12045.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import comb

from coterie.types import CoterieError


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k episodes is right, from `c` right ones of `n`. Raises `CoterieError` unless 1 <= k <= n."""
    _check(n, c, k)
    return 1 - comb(n - c, k) / comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k episodes are right, from `c` right ones of `n`. Raises `CoterieError` unless 1 <= k <= n."""
    _check(n, c, k)
    return comb(c, k) / comb(n, k)


@dataclass(frozen=True, slots=True)
class Passes:
    """Of one run, means over `tasks` in [0, 1]: pass@1, pass@k, pass^k. `left_out` tasks have fewer than k graded episodes."""

    pass_1: float
    pass_at_k: float
    pass_hat_k: float
    tasks: int
    left_out: int


def passes(per_task: Mapping[str, Sequence[float | None]], k: int) -> Passes:
    """pass@1, pass@k and pass^k of one run from its rewards by task, each in [0, 1], None where grading failed.

    Raises `CoterieError` when k is below 1 or more than the episodes that were played for every task.
    """
    played = max((len(rewards) for rewards in per_task.values()), default=0)
    if not 1 <= k <= played:
        raise CoterieError(
            f"pass@{k} needs 1 <= k <= the episodes of each held-out task, which are {played}; "
            "score the runs again with more (evaluate.episodes), or give a smaller k."
        )
    counts = [(len(of), sum(reward >= 1 for reward in of)) for one in per_task.values() if len(of := _graded(one)) >= k]
    if not counts:
        raise CoterieError(f"pass@{k}: the grader failed on so many episodes that no task has {k} graded ones; give a smaller k.")
    means = [
        sum(values) / len(counts)
        for values in zip(*((c / n, pass_at_k(n, c, k), pass_hat_k(n, c, k)) for n, c in counts), strict=True)
    ]
    return Passes(means[0], means[1], means[2], len(counts), len(per_task) - len(counts))


def _graded(rewards: Sequence[float | None]) -> list[float]:
    return [reward for reward in rewards if reward is not None]


def _check(n: int, c: int, k: int) -> None:
    if not (1 <= k <= n and 0 <= c <= n):
        raise CoterieError(f"pass@k needs 1 <= k <= n and 0 <= right <= n; it got k = {k}, n = {n}, right = {c}.")
