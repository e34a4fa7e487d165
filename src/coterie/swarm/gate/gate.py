"""The door: from bytes as they came in to a group that may be learned from, or the reason why not.

In the released SAPO system records were not signed, truth and scorer came from the sender (with a wrong truth the right answer
scores 0 and the attacker's 1), and there was no quota, reputation or ban. Proofs of inference, as others have them (TOPLOC,
GRAIL), need one model for all. So the content is verified here: the task is made again from its reference, and the reward graded
again.

The order is by cost, cheapest first, and by who may be blamed. Free of parsing: own, size, list of keys, quota, replay. From the
bytes: schema, and that node, seq, swarm and time are as they must be. Then the signature. All of that can be caused by anybody in
any name, so it is charged to the bucket of doubts and held against nobody; only what the signature proves fresh is charged to the
node's quota, marks its seq and touches its reputation. Then what costs most: task, duplicates, grading.

Text is data. Completions may hold whatever a chat template writes between messages: they are encoded by
`tokens.ChatTokenizer.encode_text`, which knows no control tokens, so they cannot speak with the template's voice, and the gate does
not look for them.
"""

import math
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from coterie.grading.base import Grader, GradingError
from coterie.swarm.envelope import Malformed, decode
from coterie.swarm.gate.counters import ADMITTED, USEFUL, Counters
from coterie.swarm.gate.duplicates import Fingerprints, fingerprints, repeated
from coterie.swarm.gate.places import Known, Places
from coterie.swarm.gate.quota import Bucket
from coterie.swarm.gate.reputation import FAULTS, Reputation, shares
from coterie.swarm.gate.state import Remembered, State
from coterie.swarm.gate.words import Admitted, Dropped, Limits, Reason, Row
from coterie.swarm.identity import verify
from coterie.swarm.words import Envelope, NodeId, Received, TaskRef
from coterie.types import Task

_SAVE_EVERY = 2.0
"""Seconds between two writings of the counters; a kill loses what was counted since."""


class Gate:
    """Admits or drops what one exchange received. For one thread, and one file a node.

    `regenerate` makes a task from its reference, or says why it cannot (or None): `taskrefs.task_or_reason`. `allowed`
    closes the swarm to all keys but these. `path` is the file in which seqs, fingerprints, reputations and counters survive a
    restart; None keeps them in memory only. `clock` gives unix seconds.
    """

    def __init__(
        self,
        swarm: str,
        own: NodeId,
        regenerate: Callable[[TaskRef], Task | str | None],
        grader: Grader,
        path: Path | None,
        allowed: Collection[NodeId] | None = None,
        limits: Limits | None = None,
        clock: Callable[[], float] = time.time,
    ):
        self._swarm, self._own = swarm, own
        self._regenerate, self._grader = regenerate, grader
        self._allowed = None if allowed is None else frozenset(allowed)
        self._limits = limits = limits or Limits()
        self._clock = clock
        self._state = State(path, limits.texts)
        self._counters = Counters(limits.nodes, self._state.rows())
        self._saved = now = clock()
        self._strangers = Bucket(limits.strangers_per_second, limits.strangers_burst, now)
        self._returning = Bucket(limits.strangers_per_second, limits.strangers_burst, now)
        self._known = Places(max(limits.nodes, len(self._allowed or ())), limits.half_life)
        for node in (*self._state.first(limits.nodes), *sorted(self._allowed or ())):
            self._known.keep(node, self._fresh(self._state.node(node) or Remembered(), now), now)

    def admit(self, received: Received) -> Admitted | Dropped:
        """Never raises for what is in the bytes. Raises CoterieError when the gate's own file cannot be written."""
        now = self._clock()
        known = self._known.get(received.node)
        about = (self._state.node(received.node) or Remembered()) if known is None else known.about
        doubts = self._doubts(known, about, now)
        seen = self._glance(received, known, doubts, about, now)
        if seen is None:
            seen = self._examine(received, now)
            if known is None or isinstance(seen, Dropped):
                doubts.take(1, now)
        if isinstance(seen, Dropped):
            self._count(seen, False, now)
            return seen
        envelope, known = seen, known or self._fresh(about, now)
        self._known.keep(received.node, known, now)
        known.envelopes.take(1, now)
        known.bytes.take(len(received.body), now)
        task = self._task(envelope)
        if isinstance(task, Dropped):
            result, prints = task, None
        else:
            prints = fingerprints(task.question, envelope.rollouts.completions)
            result = self._reward(envelope, task, prints)
        self._remember(known, envelope, result, prints, now)
        self._count(result, True, now)
        return result

    def weight(self, node: NodeId) -> float:
        """Between 0 and 1: what this node's groups are worth drawing (see `reputation.py`)."""
        return self._reputation(node).weight(self._clock(), self._limits.half_life)

    def shares(self, nodes: Sequence[NodeId]) -> list[float]:
        """With which probability to draw each of some admitted groups, given the node of each. They sum to 1."""
        now, half_life = self._clock(), self._limits.half_life
        about = {node: self._reputation(node) for node in set(nodes)}
        return shares(nodes, lambda n: about[n].weight(now, half_life), lambda n: about[n].known(now, half_life))

    def rows(self) -> list[Row]:
        """The counters, one row a node. For another process: `state.read_rows` of the same file."""
        return self._counters.rows()

    def together(self) -> AbstractContextManager[None]:
        """What is admitted within it is remembered when it ends and not before, so that its caller can write down first what it
        was let in: a process that is killed between the two finds all of it again."""
        return self._state.together()

    def close(self) -> None:
        """Writes the counters and closes the file. The grader stays its owner's."""
        self._save_rows(self._clock())
        self._state.close()

    def _doubts(self, known: Known | None, about: Remembered, now: float) -> Bucket:
        """What is charged with an envelope under this name that proves nothing, and with the first of who has no place."""
        if known is not None:
            return known.doubts
        return self._returning if about.reputation.known(now, self._limits.half_life) else self._strangers

    def _glance(self, received: Received, known: Known | None, doubts: Bucket, about: Remembered, now: float) -> Dropped | None:
        """What can be seen without parsing, from who the exchange says it is."""
        node, size, limits = received.node, len(received.body), self._limits
        if node == self._own:
            return Dropped(node, Reason.OWN)
        if size > limits.max_bytes:
            return Dropped(node, Reason.SIZE, f"{size} bytes, limit {limits.max_bytes}")
        if self._allowed is not None and node not in self._allowed:
            return Dropped(node, Reason.NOT_ALLOWED)
        if about.window.seen(received.seq):
            return Dropped(node, Reason.REPLAY)
        if not doubts.has(1, now):
            return Dropped(node, Reason.QUOTA, "too many unknown keys" if known is None else "too much that it did not sign")
        if known is None:
            return None
        if not known.envelopes.has(1, now):
            return Dropped(node, Reason.QUOTA, "envelopes")
        if not known.bytes.has(size, now):
            return Dropped(node, Reason.QUOTA, "bytes")
        return None

    def _examine(self, received: Received, now: float) -> Envelope | Dropped:
        """What the bytes themselves say; the signature last, since it costs most."""
        node, limits = received.node, self._limits
        try:
            envelope, signed, signature = decode(received.body, limits.max_bytes)
        except Malformed as error:
            return Dropped(node, Reason.SCHEMA, error.reason)
        if (envelope.node, envelope.seq) != (node, received.seq):
            return Dropped(node, Reason.MISMATCH, f"received as {received.seq} of {node[:8]}")
        if envelope.swarm != self._swarm:
            return Dropped(node, Reason.SWARM, envelope.swarm)
        if envelope.time < now - limits.max_age:
            return Dropped(node, Reason.OLD, f"{now - envelope.time:.0f} s old")
        if envelope.time > now + limits.max_ahead:
            return Dropped(node, Reason.FUTURE, f"{envelope.time - now:.0f} s ahead of the local clock")
        if not verify(node, signed, signature):
            return Dropped(node, Reason.SIGNATURE)
        return envelope

    def _task(self, envelope: Envelope) -> Task | Dropped:
        """The task, made here."""
        node, rollouts = envelope.node, envelope.rollouts
        low, high = self._limits.completions
        if not low <= len(rollouts.completions) <= high:
            return Dropped(node, Reason.COMPLETIONS, f"{len(rollouts.completions)}, not {low} to {high}")
        try:
            task = self._regenerate(rollouts.ref)
        except Exception as error:  # others' settings, given to others' generators: whatever it raises, the node goes on
            return Dropped(node, Reason.TASK_ERROR, _said(error))
        if not isinstance(task, Task):
            return Dropped(node, Reason.UNKNOWN_TASK, task or f"{rollouts.ref.source} {rollouts.ref.version}")
        if task.question != rollouts.question:
            return Dropped(node, Reason.QUESTION, f"{rollouts.ref.source}, seed {rollouts.ref.seed}, index {rollouts.ref.index}")
        return task

    def _reward(self, envelope: Envelope, task: Task, prints: Fingerprints) -> Admitted | Dropped:
        """What new completions are worth, graded here."""
        node, rollouts = envelope.node, envelope.rollouts
        reason = repeated(prints, self._state.authors(prints), node)
        if reason is not None:
            return Dropped(node, reason)
        try:
            grades = self._grader.grade_tasks([(text, task) for text in rollouts.completions])
        except Exception as error:  # as above; and a reward that fails is counted, never a silent 0
            return Dropped(node, Reason.GRADING, _said(error))
        rewards = tuple(grade for grade in grades if not isinstance(grade, GradingError) and math.isfinite(grade))
        if len(rewards) != len(rollouts.completions):
            failed = next((grade.reason for grade in grades if isinstance(grade, GradingError)), "a grade that is no number")
            return Dropped(node, Reason.GRADING, failed[:300])
        return Admitted(node, rollouts, task, rewards)

    def _remember(
        self, known: Known, envelope: Envelope, result: Admitted | Dropped, prints: Fingerprints | None, now: float
    ) -> None:
        admitted = isinstance(result, Admitted)
        useful = admitted and len(set(result.rewards)) > 1
        reputation = known.about.reputation.after(
            now,
            self._limits.half_life,
            useful=int(useful),
            dull=int(admitted and not useful),
            faults=int(not admitted and _is_fault(result.reason, prints)),
        )
        newest = max(known.about.newest, envelope.time)
        known.about = Remembered(known.about.window.mark(envelope.seq), newest, reputation)
        self._state.save(envelope.node, known.about, prints if admitted else None)

    def _count(self, result: Admitted | Dropped, proven: bool, now: float) -> None:
        if isinstance(result, Admitted):
            what = (ADMITTED, USEFUL) if len(set(result.rewards)) > 1 else (ADMITTED,)
        else:
            what = (str(result.reason),)
        self._counters.add(result.node, proven, now, *what)
        if not 0 <= now - self._saved < _SAVE_EVERY:
            self._save_rows(now)

    def _save_rows(self, now: float) -> None:
        self._state.save_rows(self._counters.rows(), now - self._limits.max_age, self._limits.nodes)
        self._saved = now

    def _fresh(self, about: Remembered, now: float) -> Known:
        limits = self._limits
        return Known(
            about,
            Bucket(limits.envelopes_per_second, limits.envelopes_burst, now),
            Bucket(limits.bytes_per_second, limits.bytes_burst, now),
            Bucket(limits.doubts_per_second, limits.doubts_burst, now),
        )

    def _reputation(self, node: NodeId) -> Reputation:
        known = self._known.get(node)
        about = known.about if known is not None else self._state.node(node)
        return Reputation() if about is None else about.reputation


def _is_fault(reason: Reason, prints: Fingerprints | None) -> bool:
    """Whether an honest node does not send this. Short answers it may send again: it comes back to a task and writes "7" again."""
    short = prints is not None and not prints.long
    return reason in FAULTS and not (reason is Reason.DUPLICATE and short)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
