"""The words of the gate: what it lets in, what it drops and why, and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from coterie.swarm.envelope import MAX_BYTES, MAX_COMPLETIONS
from coterie.swarm.words import NodeId, Rollouts
from coterie.types import Task


class Reason(StrEnum):
    """Why an envelope was dropped; in the order in which the gate looks."""

    OWN = "own"
    """This node's own: exchanges hand those back."""
    SIZE = "size"
    NOT_ALLOWED = "not allowed"
    """The swarm is closed and the key is not on its list."""
    QUOTA = "quota"
    """The key has spent what it may send, or too much that nobody signed came under it (see `quota.py`)."""
    REPLAY = "replay"
    """This node and seq were judged before, or so long ago that it cannot be told."""
    SCHEMA = "schema"
    """The bytes are no envelope."""
    MISMATCH = "mismatch"
    """The exchange has it under another node or seq than stands in it."""
    SWARM = "swarm"
    """It was made for another swarm."""
    OLD = "old"
    FUTURE = "future"
    """Its time is ahead of the local clock: one of the two clocks is wrong."""
    SIGNATURE = "signature"
    COMPLETIONS = "completions"
    """Too few or too many."""
    UNKNOWN_TASK = "unknown task"
    """The source, or this version of it, cannot be made here."""
    TASK_ERROR = "task error"
    """Making the task raised an error."""
    QUESTION = "question"
    """The task made here asks something else."""
    DUPLICATE = "duplicate"
    """The node has sent these completions before."""
    COPYCAT = "copycat"
    """Another node has sent these completions before."""
    GRADING = "grading"
    """The local grader could not judge a completion."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """A group that may be learned from. `task` was made here and `rewards` graded here, one for each completion."""

    node: NodeId
    rollouts: Rollouts
    task: Task
    rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Dropped:
    """`node` is who the exchange says sent it; nobody has proved it unless the signature was reached."""

    node: NodeId
    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one node, for `coterie swarm status`. `proven`: at least one envelope bore its valid signature."""

    node: NodeId
    proven: bool
    last_seen: float
    admitted: int
    useful: int
    """Of the admitted groups, those whose rewards are not all equal: only they teach anything."""
    dropped: Mapping[str, int]
    """Counts by reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one node may cost this one. Times in seconds, sizes in bytes."""

    max_bytes: int = MAX_BYTES
    max_age: float = 3600.0
    max_ahead: float = 60.0
    """How far an envelope's time may be ahead of the local clock."""
    completions: tuple[int, int] = (2, MAX_COMPLETIONS)
    """The smallest and largest group. One completion has no baseline."""
    envelopes_per_second: float = 8.0
    envelopes_burst: float = 256.0
    """What a node may have sent at once: a late joiner reads the history of an hour in one go."""
    bytes_per_second: float = 256.0 * 1024
    bytes_burst: float = 16.0 * 1024**2
    doubts_per_second: float = 1.0
    doubts_burst: float = 32.0
    """Envelopes under a known key that are examined and turn out to prove nothing, for example with a wrong signature."""
    strangers_per_second: float = 4.0
    strangers_burst: float = 256.0
    """The same for all unknown keys together, and new keys that prove themselves count too. And once more for all known nodes that
    are kept in memory no longer."""
    nodes: int = 1000
    """Nodes that are kept in memory and counted one by one; who makes room for others is in `places.py`."""
    texts: int = 100_000
    """Completions that are remembered, to know them again."""
    half_life: float = 6 * 3600.0
    """After which what a node did counts half in its reputation."""
