"""How groups get around: flooded whole to everybody, or announced in shards and pulled on demand.

A shard is a part of the swarm's publishers: a node announces in one shard, which follows from its key, and reads a few. Sharding by
publisher and not by group is a choice: a reader then meets the same keys again and again, which is what a reputation needs
(`bad.py` simulates both).
"""

from dataclasses import dataclass

import numpy as np

PER_SHARD = 16
"""Publishers of a shard. With two shards read, a node that pulls four groups in each round of five minutes draws from each of 32
publishers often enough to know it: 4 x 72 / ln 2 = 415 groups within the memory of a half-life of six hours, 13 a publisher."""
READS = 2
PER_HUB = 250


@dataclass(frozen=True, slots=True)
class Sharing:
    """`shards` None floods; else announcements go to that many shards, of which a node reads `reads`."""

    shards: int | None = None
    reads: int = READS

    def layout(self, nodes: int, rng: np.random.Generator) -> tuple[list[int], list[tuple[int, ...]]]:
        """The shard in which each node publishes, and those that each reads. Flooding is one shard, read by all."""
        shards = self.shards or 1
        publishes = rng.integers(shards, size=nodes).tolist()
        if self.reads >= shards:
            return publishes, [tuple(range(shards))] * nodes
        return publishes, [tuple(rng.choice(shards, self.reads, replace=False).tolist()) for _ in range(nodes)]

    @property
    def seen(self) -> float:
        """The share of the swarm's publishers that a node hears of, on average."""
        return min(1.0, self.reads / (self.shards or 1))


def shard_count(nodes: int, per_shard: int = PER_SHARD) -> int:
    """One shard for each `per_shard` nodes: what a node reads then does not grow with the swarm."""
    return max(1, round(nodes / per_shard))


def hub_count(nodes: int, per_hub: int = PER_HUB) -> int:
    """At least two: with one, its death isolates its clients."""
    return max(2, -(-nodes // per_hub))
