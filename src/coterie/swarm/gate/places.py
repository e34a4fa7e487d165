"""The nodes that have buckets of their own, and who makes room when there are too many of them.

A place is had by a valid signature, and keys are free. Were the longest silent node put out, as in a cache, then new keys at the
strangers' rate (4 a second) would put out each of 1,000 nodes that is silent for four minutes, which honest ones are between two
rounds; each would be a stranger again, before the one bucket that the same keys keep empty, for as long as they like. So who has
shown itself does not make room for who has not:

- Newcomers (see `reputation.KNOWN`) have the places that known nodes leave, a quarter of all at least. The longest silent goes.
- Beyond three quarters, the least useful of the known nodes goes, what it did decayed by age; of equals the longest silent.

Nothing that the gate's file holds is lost with a place. A known node that was put out comes back through a bucket in which new keys
have no part, and what a newcomer was admitted for counts when it is next heard: eight groups, however far apart, make it known.

Limit: of `f` envelopes a second under new names, of which the strangers' rate `r` are read, a newcomer's own is read with a chance
of r/f, whatever is done here: nothing tells it from the others (Douceur 2002). It is late, and never locked out; `allowed` or a
transport with access control ends that. And who has 750 keys known by honest groups has three quarters of the places of 1,000.
"""

from collections import OrderedDict
from dataclasses import dataclass

from coterie.swarm.gate.quota import Bucket
from coterie.swarm.gate.state import Remembered
from coterie.swarm.words import NodeId

NEWCOMERS = 4
"""One place in so many is kept for newcomers."""


@dataclass(slots=True)
class Known:
    """A node that has proved itself, or is on the list. Only such have buckets: if a mere claim made one, inventing enough names
    would push a node's own, empty, buckets out of memory, and it would begin with full ones."""

    about: Remembered
    envelopes: Bucket
    bytes: Bucket
    doubts: Bucket


class Places:
    """At most `size` nodes. `half_life` as in `Reputation`, seconds."""

    def __init__(self, size: int, half_life: float):
        self._size, self._half_life = size, half_life
        self._nodes: OrderedDict[NodeId, Known] = OrderedDict()

    def get(self, node: NodeId) -> Known | None:
        return self._nodes.get(node)

    def keep(self, node: NodeId, known: Known, now: float) -> None:
        """This node was heard just now: it has a place, and another one goes where there are too many."""
        self._nodes[node] = known
        self._nodes.move_to_end(node)
        if len(self._nodes) > self._size:
            del self._nodes[self._last(node, now)]

    def _last(self, but: NodeId, now: float) -> NodeId:
        """Who goes: in the order of `_nodes`, the longest silent first. Costs a look at all, at the rate of new places."""
        standing = {node: one.about.reputation.decayed(now, self._half_life) for node, one in self._nodes.items()}
        useful = {node: one.useful for node, one in standing.items() if one.known(now, self._half_life)}
        newcomers = [node for node in self._nodes if node not in useful]
        if len(newcomers) > max(1, self._size // NEWCOMERS) or len(useful) == (but in useful):
            return next(node for node in newcomers if node != but)
        return min((node for node in useful if node != but), key=useful.__getitem__)
