"""The words of the swarm as small frozen dataclasses; nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NodeId = str
"""A node's ed25519 public key in hex: 64 characters."""


@dataclass(frozen=True, slots=True)
class TaskRef:
    """Where a task comes from, such that anybody can make it again: a source that is deterministic in everything below.

    What is sent is this reference and never the truth: the receiver makes question and answer itself.
    """

    source: str
    """For example "pocket" or "reasoning_gym/base_conversion"."""
    version: str
    """Of the source: another version may make other tasks."""
    config: str
    """The source's settings as canonical JSON (sorted keys, no spaces)."""
    seed: int
    index: int


@dataclass(frozen=True, slots=True)
class Rollouts:
    """What a node shares of one task: the completions of one group, as text. No rewards, token ids, log-probs or weights."""

    ref: TaskRef
    question: str
    """What the generator was asked; a receiver drops the group when its own reading of `ref` differs."""
    completions: tuple[str, ...]
    round: int
    """The generator's own round; a tag, not a barrier."""
    policy: str
    """Which policy wrote it, in the generator's words, for example "qwen2.5-0.5b@120"."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """Rollouts with their sender. `seq` counts a node's envelopes from 0; `time` is the sender's clock in unix seconds."""

    swarm: str
    node: NodeId
    seq: int
    time: float
    rollouts: Rollouts


@dataclass(frozen=True, slots=True)
class Received:
    """Bytes as they came in, before anybody has looked at them. `number` orders what one exchange has received."""

    number: int
    node: NodeId
    seq: int
    time: float
    """When it was received here, unix seconds."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Peer:
    node: NodeId
    last_seen: float
    """Unix seconds, by the local clock."""
    envelopes: int
    meta: Mapping[str, str] = field(default_factory=dict)
