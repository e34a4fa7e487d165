"""What a swarm of a size that nobody here can start would cost and do, by simulation; `docs/swarm-scale.md` has the findings.

Nothing in coterie depends on this package: it is the argument for the defaults of a swarm, kept where it can be run again.
"""

from coterie.swarm.simulate.bad import BadNodes, effective_nodes, play, useful_share
from coterie.swarm.simulate.sharing import Sharing, hub_count, shard_count
from coterie.swarm.simulate.spread import Spread, half_time
from coterie.swarm.simulate.traffic import Costs, Load, Sizes, load

__all__ = [
    "BadNodes",
    "Costs",
    "Load",
    "Sharing",
    "Sizes",
    "Spread",
    "effective_nodes",
    "half_time",
    "hub_count",
    "load",
    "play",
    "shard_count",
    "useful_share",
]
