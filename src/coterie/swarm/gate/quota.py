"""Token buckets: a rate that may be exceeded for a moment.

A node has one for its envelopes and one for their bytes, which only its own valid signatures can empty: were they charged before
the signature is known, anybody could silence a node by sending rubbish under its name. What proves nothing (no envelope, wrong
signature, resent from another swarm) is charged elsewhere: to a bucket of doubts of that key, or, for keys that are not known, to
one bucket for all strangers, since new keys cost nothing (Douceur 2002, "The Sybil Attack"). Whoever finds a bucket empty is
dropped unread, so the cost of a flood is bounded by the rates whatever comes in.

Known failure: rubbish under a known node's name, faster than the rate of doubts, keeps that node's envelopes out as long as it
lasts, and rubbish under new keys keeps newcomers waiting (`places.py` says how long). A closed swarm over a transport with access
control has neither problem.
"""


class Bucket:
    """At most `burst` tokens, `rate` new ones a second; full at first. A clock that is set back adds none and takes none."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float):
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def has(self, amount: float, now: float) -> bool:
        self._tokens = min(self.burst, self._tokens + self.rate * max(0.0, now - self._at))
        self._at = now
        return self._tokens >= amount

    def take(self, amount: float, now: float) -> None:
        """Never below zero: what is taken was looked for with `has`, or is the last that gets through."""
        self.has(amount, now)
        self._tokens = max(0.0, self._tokens - amount)
