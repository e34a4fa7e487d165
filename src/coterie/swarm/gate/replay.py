"""Which seqs of a node were judged: the sliding window of IPsec (RFC 4303, section 3.4.3), in constant memory."""

from dataclasses import dataclass

WIDTH = 1024


@dataclass(frozen=True, slots=True)
class Window:
    """`top` is the highest seq that was marked, bit i of `bits` says whether `top - i` was.

    A seq that lies `WIDTH` or more below the top counts as seen, since nobody knows. So an envelope may come late by a thousand
    others of its node, and never twice. A node that begins to count from 0 again (a lost state with a kept key) is not heard
    until it passes its old top: nodes must keep their seq, or take a new key.
    """

    top: int = -1
    bits: int = 0

    def seen(self, seq: int) -> bool:
        if seq > self.top:
            return False
        return self.top - seq >= WIDTH or bool(self.bits >> (self.top - seq) & 1)

    def mark(self, seq: int) -> "Window":
        if seq <= self.top:
            return Window(self.top, self.bits | 1 << (self.top - seq)) if self.top - seq < WIDTH else self
        ahead = seq - self.top
        kept = self.bits << ahead & (1 << WIDTH) - 1 if ahead < WIDTH else 0
        return Window(seq, kept | 1)
