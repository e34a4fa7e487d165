"""What a draw is: how many episodes a task gets, and which of them are kept for learning."""

from collections.abc import Mapping, Sequence
from typing import Protocol as Interface

Rewards = Sequence[float | None]
"""The team reward of each episode drawn so far for one task; None where grading failed."""


class Draw(Interface):
    def more(self, pools: Mapping[str, Rewards], rounds: int) -> Mapping[str, int]:
        """How many further episodes to play for each key of `pools` (one a task), given how many rounds were played; empty ends."""
        ...

    def keep(self, rewards: Rewards) -> Sequence[int]:
        """Which episodes of a finished pool the learner sees, by index. The baseline still uses the whole pool."""
        ...
