"""Bytes and processor time of a node in a round, by moving every message along its wires.

Some nodes are hubs, each linked with every other hub; the rest are clients of one hub, as zenoh has it for nodes that cannot be
reached. A message goes from its node to the hub, from there once to each hub that has a reader, and from each hub to each of its
readers. A body is asked for and comes back along the same way. Only payloads are counted: no headers, keep-alives, subscriptions
or repairs. Nodes work at equal paces here, so a round is a round; bytes add up the same way at any other pace.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from coterie.seeding import stream
from coterie.swarm.simulate.sharing import Sharing


@dataclass(frozen=True, slots=True)
class Sizes:
    """Bytes. A group is eight completions; an announcement is reference, hash, counts and signature."""

    group: int = 20_000
    announcement: int = 400
    request: int = 200


@dataclass(frozen=True, slots=True)
class Costs:
    """Processor seconds. Signing and verifying were measured on 20 KB; the gate's is all that it does with one group but verify."""

    sign: float = 76e-6
    verify: float = 109e-6
    gate: float = 1e-3


@dataclass(frozen=True, slots=True)
class Load:
    """In a round. Bytes: the mean over clients, the client with most, and the hub with most."""

    client_in: float
    client_in_most: float
    client_out: float
    client_out_most: float
    hub_in: float
    hub_out: float
    cpu: float
    """Processor seconds of a node for signing, verifying and the gate, the mean over all."""
    drawn: float
    """Foreign bodies that a node had to choose from or has pulled, the mean over all: all of them, or J."""


class _Wires:
    def __init__(self, nodes: int, hubs: int):
        self.hubs = hubs
        self.home = np.arange(nodes) % hubs
        self.incoming = np.zeros(nodes, dtype=np.int64)
        self.outgoing = np.zeros(nodes, dtype=np.int64)

    def send(self, a: int, b: int, size: int) -> None:
        """From a node to another, through their hubs."""
        way = [a, int(self.home[a]), int(self.home[b]), b]
        for one, other in pairwise(way):
            if one != other:
                self.outgoing[one] += size
                self.incoming[other] += size

    def spread(self, sender: int, readers: np.ndarray, size: int) -> None:
        """From a node to all readers but itself, once over each wire."""
        home = self.home[sender]
        others = readers[readers != sender]
        clients = others[others >= self.hubs]
        reached = np.bincount(self.home[others], minlength=self.hubs) > 0
        if sender != home and len(others):
            self.outgoing[sender] += size
            self.incoming[home] += size
        reached[home] = False
        self.outgoing[home] += size * int(reached.sum())
        self.incoming[: self.hubs][reached] += size
        self.outgoing[: self.hubs] += size * np.bincount(self.home[clients], minlength=self.hubs)
        self.incoming[clients] += size


def load(
    nodes: int,
    hubs: int,
    sharing: Sharing,
    groups: int = 8,
    draws: int = 4,
    rounds: int = 1,
    seed: int = 0,
    sizes: Sizes | None = None,
    costs: Costs | None = None,
) -> Load:
    """Each node shares `groups` a round; when announcing, it pulls `draws` (J) of those it heard of, each with the same chance."""
    sizes, costs = sizes or Sizes(), costs or Costs()
    rng = stream(seed, "traffic", nodes, sharing.shards or 0)
    wires = _Wires(nodes, hubs)
    publishes, reads = sharing.layout(nodes, rng)
    shards = range(sharing.shards or 1)
    publishers = [np.flatnonzero(np.array(publishes) == shard) for shard in shards]
    readers = [np.array([node for node in range(nodes) if shard in reads[node]], dtype=np.int64) for shard in shards]
    size = sizes.group if sharing.shards is None else sizes.announcement
    cpu, drawn = 0.0, 0
    for _ in range(rounds):
        for node in range(nodes):
            wires.spread(node, readers[publishes[node]], size * groups)
        for node in range(nodes):
            heard = np.concatenate([publishers[shard] for shard in reads[node]])
            heard = heard[heard != node]
            count = groups * len(heard)
            taken = count
            if sharing.shards is not None:
                taken = min(draws, count)
                for one in rng.choice(count, taken, replace=False, shuffle=False):
                    wires.send(node, int(heard[one // groups]), sizes.request)
                    wires.send(int(heard[one // groups]), node, sizes.group)
                # a body is signed as its announcement is, so both are signed and both verified
                cpu += costs.sign * groups + costs.verify * count
            cpu += costs.sign * groups + (costs.verify + costs.gate) * taken
            drawn += taken
    incoming, outgoing = wires.incoming / rounds, wires.outgoing / rounds
    return Load(
        client_in=float(incoming[hubs:].mean()),
        client_in_most=float(incoming[hubs:].max()),
        client_out=float(outgoing[hubs:].mean()),
        client_out_most=float(outgoing[hubs:].max()),
        hub_in=float(incoming[:hubs].max()),
        hub_out=float(outgoing[:hubs].max()),
        cpu=cpu / rounds / nodes,
        drawn=drawn / rounds / nodes,
    )
