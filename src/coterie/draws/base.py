"""What a draw is: how many episodes a task gets, and which of them are kept for learning."""

from collections.abc import Sequence
from typing import Protocol as Interface

Rewards = Sequence[float | None]
"""The team reward of each episode drawn so far for one task; None where grading failed."""


class Draw(Interface):
    def more(self, pools: Sequence[Rewards], rounds: int, casts: Sequence[Sequence[int]] | None = None) -> Sequence[int]:
        """How many further episodes to play of each task, given the episodes so far and how many rounds were played.

        `casts` numbers, for each episode of each pool, the casts that a task was played by (0 is the first): episodes of different
        casts need not be compared with each other. None: all are of one cast.

        Entries past the end of `pools` ask for fresh tasks, that many episodes each; all zero, or empty, ends the step's drawing.
        """
        ...

    def keep(self, rewards: Rewards) -> Sequence[int]:
        """Which episodes of a finished pool the learner sees, by index; none drops the task. Baselines still use the whole pool."""
        ...
