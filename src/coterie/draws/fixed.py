"""fixed: the same number of episodes for every task, all kept."""

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.draws.base import Rewards


@dataclass(frozen=True, slots=True)
class FixedDraw:
    episodes: int

    def more(self, pools: Sequence[Rewards], rounds: int, casts: Sequence[Sequence[int]] | None = None) -> Sequence[int]:
        return [] if rounds else [self.episodes] * len(pools)

    def keep(self, rewards: Rewards) -> Sequence[int]:
        return range(len(rewards))
