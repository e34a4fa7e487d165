"""fixed: the same number of episodes for every task, all kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.draws.base import Rewards


@dataclass(frozen=True, slots=True)
class FixedDraw:
    episodes: int

    def more(self, pools: Mapping[str, Rewards], rounds: int) -> Mapping[str, int]:
        return {} if rounds else dict.fromkeys(pools, self.episodes)

    def keep(self, rewards: Rewards) -> Sequence[int]:
        return range(len(rewards))
