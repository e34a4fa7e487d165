"""What an exchange is: signed bytes in, bytes of everybody out, kept for those who come late.

An exchange moves and keeps bytes. It believes nothing that is in them: node and seq of `publish` are the publisher's own, and what
was received is handed to the gate as it came. No call blocks for the network: publishing writes locally and returns, drawing reads
what has arrived.
"""

import re
from collections.abc import Sequence
from typing import Protocol as Interface

from coterie.swarm.words import NodeId, Peer, Received
from coterie.types import CoterieError

NODE = re.compile(r"[0-9a-z_-]{1,64}")
"""Node ids become file names and parts of keys, so nothing that a path or a key expression would read otherwise."""


class Exchange(Interface):
    def publish(self, node: NodeId, seq: int, body: bytes) -> None:
        """Keep and spread one envelope. The same (node, seq) twice is kept once. CoterieError for a body beyond the limit."""
        ...

    def draw(self, after: int, limit: int) -> Sequence[Received]:
        """What was received after number `after`, oldest first, own envelopes included. The first number is 1."""
        ...

    def history(self, since: float, limit: int) -> Sequence[Received]:
        """The newest `limit` envelopes received since a time (unix seconds), oldest first: what a late joiner reads."""
        ...

    def peers(self) -> Sequence[Peer]:
        """Everybody heard of, with when and how often."""
        ...

    def last_seq(self, node: NodeId) -> int:
        """The highest seq that a node published through this exchange, pruned ones too, -1 for none: a node that starts again goes
        on from here. What others sent in its name does not count, or they could use up its numbers."""
        ...

    def status(self) -> str:
        """What it is doing or waiting for, in a sentence for people."""
        ...

    def close(self) -> None: ...


def problem(node: str, seq: int, size: int, limit: int) -> str | None:
    """What is wrong with an envelope, in words that end a sentence, or None."""
    if not NODE.fullmatch(node):
        return f"node {node[:80]!r} is not 1 to 64 characters of 0-9, a-z, _ and -"
    if not 0 <= seq < 2**63:
        return f"seq {seq} is not between 0 and 2^63 - 1"
    if not 0 < size <= limit:
        return f"a body of {size} bytes is not between 1 and {limit}; share shorter completions, or raise max_body everywhere"
    return None


def check(node: str, seq: int, body: bytes, limit: int) -> None:
    if words := problem(node, seq, len(body), limit):
        raise CoterieError(f"cannot publish: {words}")
