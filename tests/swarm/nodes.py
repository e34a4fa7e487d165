"""Nodes for tests of the swarm: keys that are the same each time, envelopes, and a gate with a clock that is set by hand."""

from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coterie.swarm.envelope import encode
from coterie.swarm.gate import Gate
from coterie.swarm.identity import Identity
from coterie.swarm.words import Envelope, Received, Rollouts, TaskRef
from coterie.types import Task
from tests.fakes import EqualText

NOW = 1_700_000_000.0


def identity(number: int) -> Identity:
    return Identity(Ed25519PrivateKey.from_private_bytes(number.to_bytes(32, "big")))


ME, ANN, BOB, EVE = (identity(number) for number in range(1, 5))


def regenerate(ref: TaskRef) -> Task | None:
    """The task with this index of the source "sums", version 1, without settings. The right answer is always 7."""
    if (ref.source, ref.version, ref.config) != ("sums", "1", "{}"):
        return None
    return Task(id=f"sums-{ref.index}", question=f"What is {ref.index} + 7 - {ref.index}?", answer="7", ask="?")


def rollouts(index: int = 0, completions: tuple[str, ...] = ("7", "8"), **changes) -> Rollouts:
    made = Rollouts(TaskRef("sums", "1", "{}", 0, index), f"What is {index} + 7 - {index}?", completions, 3, "pocket@3")
    return replace(made, **changes)


def envelope(key: Identity = ANN, seq: int = 0, shared: Rollouts | None = None, **changes) -> Envelope:
    return replace(Envelope("test", key.node, seq, NOW, rollouts(seq) if shared is None else shared), **changes)


def received(key: Identity = ANN, seq: int = 0, shared: Rollouts | None = None, **changes) -> Received:
    """As an exchange hands it over, well signed."""
    return as_received(key.node, seq, encode(envelope(key, seq, shared, **changes), key))


def as_received(node: str, seq: int, body: bytes) -> Received:
    return Received(1, node, seq, NOW, body)


class Clock:
    def __init__(self, now: float = NOW):
        self.now = now

    def __call__(self) -> float:
        return self.now


def gate(path=None, **settings) -> Gate:
    settings = {"clock": Clock(), "grader": EqualText(), "regenerate": regenerate, **settings}
    return Gate("test", ME.node, path=path, **settings)


def counts(door: Gate) -> dict[str, dict[str, int]]:
    """What was dropped, by node and reason."""
    return {row.node: dict(row.dropped) for row in door.rows() if row.dropped}
