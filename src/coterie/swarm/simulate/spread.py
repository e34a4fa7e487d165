"""How long a discovery takes to reach half a swarm: an event loop over the rounds of its nodes.

The rule, as simple as it can be. One node knows something from the start. Of the groups with a signal that a node which knows it
shares in a round, `shows` show it. A node that draws such a group learns it with probability `takes` from each, and shows it from
its next round on: what it shares in a round was sampled before it learned in it. Nobody forgets. At equal paces, in step, this is a
chain-binomial epidemic (Reed and Frost; Abbey 1952, Human Biology 24) whose half time can be computed exactly, and the tests do.

Known failure: real learning is gradual, depends on model and task, and may be undone (SAPO's 2/6 run learns and forgets). So times
compare ways of sharing; they do not predict.
"""

import heapq
import math
from dataclasses import dataclass, field

import numpy as np

from coterie.seeding import stream
from coterie.swarm.simulate.sharing import Sharing

_SHARE, _DRAW = 0, 1


@dataclass(frozen=True, slots=True)
class Spread:
    nodes: int
    sharing: Sharing = field(default_factory=Sharing)
    groups: int = 4
    """Groups with a signal that a node shares in a round. Only these are drawn: announcements say which they are."""
    shows: int = 1
    takes: float = 0.25
    draws: int = 4
    """Foreign groups a round, without replacement, from the latest round of every node that is heard of."""
    favourites: int = 0
    """If not 0, how many of the nodes heard of are a node's favourites: `loyalty` of its draws are one of theirs, with replacement.
    So it is when the gate knows a few nodes and holds all others to a tenth."""
    loyalty: float = 0.9
    round: float = 300.0
    """The median node's round, seconds."""
    sigma: float = 0.0
    """Of the logarithm of a node's round: log-normal paces, each node's own and the same in all its rounds."""
    late: float = 0.0
    """The share of nodes that join later, at times uniform over `late_over` seconds."""
    late_over: float = 3600.0
    wait: float = 1.0
    """Seconds from sharing to drawing: what was shared meanwhile has arrived."""
    staggered: bool = True
    """Nodes begin at times uniform over their first round; else all at 0."""


def half_time(setting: Spread, seed: int) -> float:
    """Seconds until half of all nodes, those to come included, have learned it."""
    return _Loop(setting, stream(seed, "spread", setting.nodes)).run()


class _Loop:
    def __init__(self, setting: Spread, rng: np.random.Generator):
        nodes = setting.nodes
        self.setting, self.rng = setting, rng
        self.publishes, self.reads = setting.sharing.layout(nodes, rng)
        self.members: list[list[int]] = [[] for _ in range(setting.sharing.shards or 1)]
        for node, shard in enumerate(self.publishes):
            self.members[shard].append(node)
        self.rounds = np.maximum(setting.wait, setting.round * np.exp(setting.sigma * rng.standard_normal(nodes))).tolist()
        starts = rng.random(nodes) * self.rounds if setting.staggered else np.zeros(nodes)
        late = rng.random(nodes) < setting.late
        late[0] = False  # the discoverer is there
        starts = np.where(late, starts + setting.late_over * rng.random(nodes), starts)
        self.events = [(float(start), _SHARE, node) for node, start in enumerate(starts)]
        heapq.heapify(self.events)
        shards = setting.sharing.shards or 1
        self.present, self.showing = [0] * shards, [0] * shards
        """Nodes whose latest round can be drawn, and whose latest round shows the discovery, by shard."""
        self.joined, self.shown, self.knows = bytearray(nodes), bytearray(nodes), bytearray(nodes)
        self.knows[0] = 1
        self.favourites = [self._choose(node) for node in range(nodes)] if setting.favourites else []

    def run(self) -> float:
        setting, known, half = self.setting, 1, math.ceil(self.setting.nodes / 2)
        while known < half:
            now, kind, node = heapq.heappop(self.events)
            if kind == _SHARE:
                self._share(node)
                heapq.heappush(self.events, (now + setting.wait, _DRAW, node))
                heapq.heappush(self.events, (now + self.rounds[node], _SHARE, node))
            elif not self.knows[node] and self._learns(node):
                self.knows[node] = 1
                known += 1
                if known >= half:
                    return now
        return 0.0

    def _share(self, node: int) -> None:
        shard = self.publishes[node]
        if not self.joined[node]:
            self.joined[node] = 1
            self.present[shard] += 1
        if self.knows[node] and not self.shown[node]:
            self.shown[node] = 1
            self.showing[shard] += 1

    def _choose(self, node: int) -> tuple[int, ...]:
        heard = [other for shard in self.reads[node] for other in self.members[shard] if other != node]
        return tuple(self.rng.permutation(heard)[: self.setting.favourites].tolist())

    def _learns(self, node: int) -> bool:
        """Whether one of J groups teaches it: sequential draws without replacement, by counts. Own groups are not drawn."""
        setting, rng = self.setting, self.rng
        loyal = self.favourites[node] if self.favourites else ()
        heard = sum(self.present[shard] for shard in self.reads[node]) - (self.publishes[node] in self.reads[node])
        left, showing = setting.groups * heard, setting.shows * sum(self.showing[shard] for shard in self.reads[node])
        for _ in range(min(setting.draws, left)):
            if loyal and rng.random() < setting.loyalty:
                favourite = loyal[int(rng.integers(len(loyal)))]
                if self.shown[favourite] and rng.random() * setting.groups < setting.shows and rng.random() < setting.takes:
                    return True
                continue
            if showing and rng.random() * left < showing:
                showing -= 1
                if rng.random() < setting.takes:
                    return True
            left -= 1
        return False
