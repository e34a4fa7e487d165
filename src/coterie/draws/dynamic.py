"""dynamic: tasks whose episodes all have one reward are dropped and others drawn in their place (DAPO, 2503.14476, section 3.2).

A batch in which most groups are uniform has a small and noisy gradient. Dynamic sampling fills it with tasks that teach, at the
price of the episodes thrown away, which the step's metrics count.

What it does to the gradient. A uniform group contributes exactly zero with a group baseline, so dropping it changes no sum, only
what the sum is divided by: for every task, P(kept) E[estimate | kept] = E[estimate]. A kept group's expected estimate is then the
policy gradient over 1 - p^n - (1 - p)^n (times 1 - 1/n), and averaged over the tasks that come to be kept it is the policy gradient
over the share of tasks that are mixed: direction kept, step longer (`tests/draws/test_gradient.py`). With rounds left over, that
is; when they run out, the batch is smaller than asked.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.draws.base import Rewards


@dataclass(frozen=True, slots=True)
class DynamicDraw:
    episodes: int
    rounds: int

    def more(self, pools: Sequence[Rewards], rounds: int, casts: Sequence[Sequence[int]] | None = None) -> Sequence[int]:
        if rounds >= self.rounds:
            return []
        if not rounds:
            return [self.episodes] * len(pools)
        dropped = [_uniform(pool) for pool in pools]
        missing = _asked_for(dropped, rounds) - dropped.count(False)
        return [0] * len(pools) + [self.episodes] * missing

    def keep(self, rewards: Rewards) -> Sequence[int]:
        return () if _uniform(rewards) else [index for index, reward in enumerate(rewards) if reward is not None]


def _uniform(rewards: Rewards) -> bool:
    return len(set(rewards) - {None}) <= 1


def _asked_for(dropped: Sequence[bool], rounds: int) -> int:
    """With how many tasks the step began, from the tasks that there are after `rounds` rounds.

    Each round after the first adds a task for each one dropped in the round before, so that a start of n tasks leads to n plus the
    drops among those of the round before, and so on. That end grows with n: the largest n whose end is not past the tasks at hand
    is the start. (Were the tasks to run out, it would come out smaller, and there would be nothing left to ask for.)
    """

    def end(start: int) -> int:
        tasks = start
        for _ in range(rounds - 1):
            tasks = start + sum(dropped[:tasks])
        return tasks

    return next((start for start in range(len(dropped), 0, -1) if end(start) <= len(dropped)), 0)
