"""reinforce_ada: a task is played in rounds until its episodes differ, and a few on either side are kept (2510.04996).

A group whose rewards are all equal teaches nothing. Reinforce-Ada spends further rounds on such tasks instead of more episodes on
all, keeps a balanced few of the pool, and takes the baseline over the whole pool drawn, since the mean of the kept few would be one
half by construction. Two published uses differ in more than their numbers, so each exit has the rule of its own source:

- "spread" (talk-methods): a task is done when its pool shows two different rewards. Kept are the `keep_low` worst and `keep_high`
  best by a stable sort, so that among ties the lows are those drawn first and the highs those drawn last; a pool of no more than
  that many is kept whole.
- "balanced" and "positive" (reinforce-ada, and the authors' code): done with `keep_high` right and `keep_low` wrong, or with
  `keep_high` right. Kept are the first right and the first wrong in the order drawn; where a side is short, the other fills up.

On ties the two rules pick different episodes, hence the switch. A task that is never done keeps as many, and with one reward in the
pool their advantage is zero. An episode that could not be graded is neither counted nor kept.

What it does to the gradient. Let a reward be right or wrong, p the chance of right, m the pool's share of right ones. Given the
rewards, kept episodes are drawn from those right (or wrong) under the policy, and the mean score function there is grad p / p (or
-grad p / (1 - p)). So with h right and l wrong ones kept, the expected estimate of a task is

    c(p) grad p,   c(p) = E[h (1 - m) / p + l m / (1 - p)] / (h + l) > 0:

its direction, and so its sign, is that of the policy gradient whatever the policy; only its length changes with p. A fixed draw has
c = 1 - 1/n for all p. With two and two kept and large pools, m = p and c = 1 / (2 p (1 - p)) - 1, so what is climbed is not the sum
of p over the tasks but of logit(p) / 2 - p: tasks that are seldom solved, or seldom failed, weigh more, up to what the rounds
allow. `tests/draws/test_gradient.py` computes this exactly on bandits. With rewards of more than two values ("spread" with halves)
the direction may differ too, since the middle is thinned out.

Known cost: a task that is always solved is drawn to the last round in vain, and one such task keeps the step going.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coterie.draws.base import Rewards


@dataclass(frozen=True, slots=True)
class ReinforceAda:
    """`threshold`: a reward above it is right; "spread" does not use it."""

    per_round: int
    rounds: int
    exit: Literal["balanced", "positive", "spread"]
    threshold: float
    keep_high: int
    keep_low: int

    def more(self, pools: Sequence[Rewards], rounds: int, casts: Sequence[Sequence[int]] | None = None) -> Sequence[int]:
        if rounds >= self.rounds:
            return []
        of = casts or [[0] * len(pool) for pool in pools]
        return [0 if self._done_by_cast(pool, by) else self.per_round for pool, by in zip(pools, of, strict=True)]

    def keep(self, rewards: Rewards) -> Sequence[int]:
        graded = [(index, reward) for index, reward in enumerate(rewards) if reward is not None]
        if self.exit == "spread":
            return self._extremes(graded)
        return self._first_of_each(graded)

    def _done_by_cast(self, pool: Rewards, casts: Sequence[int]) -> bool:
        """Whether the episodes of some cast are enough by themselves: rewards that differ only between partners teach nothing
        where each partner has a baseline of its own."""
        return any(self._done([r for r, cast in zip(pool, casts, strict=True) if cast == one]) for one in {*casts, 0})

    def _done(self, pool: Rewards) -> bool:
        rewards = [reward for reward in pool if reward is not None]
        right = sum(reward > self.threshold for reward in rewards)
        if self.exit == "spread":
            return len(set(rewards)) > 1
        return right >= self.keep_high and (self.exit == "positive" or len(rewards) - right >= self.keep_low)

    def _extremes(self, graded: list[tuple[int, float]]) -> list[int]:
        ranked = [index for index, _ in sorted(graded, key=lambda item: item[1])]
        if len(ranked) <= self.keep_low + self.keep_high:
            return sorted(ranked)
        return sorted(ranked[: self.keep_low] + ranked[len(ranked) - self.keep_high :])

    def _first_of_each(self, graded: list[tuple[int, float]]) -> list[int]:
        right = [index for index, reward in graded if reward > self.threshold]
        wrong = [index for index, reward in graded if reward <= self.threshold]
        highs = self.keep_high + max(0, self.keep_low - len(wrong))
        lows = self.keep_low + max(0, self.keep_high - len(right))
        return sorted(right[:highs] + wrong[:lows])
