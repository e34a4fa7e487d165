"""Between machines: a replicator over zenoh into the same SQLite file that everything else reads.

`publish` writes to the file and then puts; what comes in is written to the file; `draw` reads the file and nothing else. A fault of
the network touches no reader, and a node without a network is a node that waits. Puts may be dropped (they never block); what is
missing is found by asking every archive what it holds (repair.py): at start, when a link comes up, when a gap shows, and every
`repair_seconds`. Every node is an archive. That reaches hundreds of nodes; for thousands, announce and pull instead.

Keys: sapo/<swarm>/body/<node> puts; sapo/<swarm>/have/<node> and sapo/<swarm>/archive/<node> answer queries.

Who listens is a peer, and must be reachable by all. Who does not (behind NAT) is a client of two hubs or more: peers do not relay
for peers, they do for clients, and a client moves to its next hub when one dies. Hubs connect to each other. Seen with 1.10.2.
"""

import json
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.swarm.exchange.base import NODE, check, problem
from coterie.swarm.exchange.links import links, load, to_config
from coterie.swarm.exchange.repair import Arrival, Inbox, Range, Wanted, decode, decode_wanted, encode, plan
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.words import NodeId, Peer, Received
from coterie.types import CoterieError

ASK, ANSWER_BYTES = 64, 8_000_000  # envelopes a query, and where its answer stops
SETTLE, AGAIN = 0.3, 2.0  # seconds: declarations travel behind the link, and some later than others


class ZenohExchange:
    """Threads and sockets: make it after forking, not before. `close()` ends both."""

    def __init__(
        self,
        swarm: str,
        node: NodeId,
        store: str | Path | SqliteExchange,
        *,
        listen: Sequence[str] = (),
        hubs: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
        accept: Callable[[NodeId, int, bytes], bool] | None = None,
        history_seconds: float = 3600,
        history_limit: int = 1000,
        repair_seconds: float = 30,
        inbox_bytes: int = 64_000_000,
    ) -> None:
        """`listen` and `hubs` are endpoints such as "tcp/192.0.2.7:7447"; `settings` are zenoh's own, by key, for example
        {"transport/link/tls": {...}} (then endpoints begin with tls/ or quic/), and win over ours. `close()` closes `store` too.

        `accept` says whether an envelope from the network is what it claims (its signature): `envelope.genuine`. What it refuses
        leaves no trace in `store`. Without it anybody who can connect takes the place of somebody else's (node, seq), and the true
        one, coming later, is a duplicate; what is published here has its place even then.
        """
        self._zenoh = load()
        if not NODE.fullmatch(swarm) or not NODE.fullmatch(node):
            raise CoterieError(
                f"swarm {swarm!r} and node {node!r} must be 1 to 64 characters of 0-9, a-z, _ and -: they are parts of keys"
            )
        self.swarm, self.node, self.prefix = swarm, node, f"sapo/{swarm}"
        self.store = store if isinstance(store, SqliteExchange) else SqliteExchange(store)
        self._hubs, self._accept = tuple(hubs), accept
        self._history, self._repair_seconds = (history_seconds, history_limit), repair_seconds
        self._settings = links(listen, hubs, self.store.max_body) | dict(settings or {})
        to_config(self._zenoh, self._settings)  # a wrong setting is an error now, not in the background
        self._inbox, self._queries = Inbox(inbox_bytes), queue.Queue[Any](64)
        self.counts: Counter[str] = Counter()
        """What happened, by reason; for people."""
        self._session: Any = None
        self._trouble, self._turn = "", 0
        self._closing, self._wake = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, daemon=True, name=work.__name__) for work in (self._tend, self._write, self._serve)
        ]
        for thread in self._threads:
            thread.start()

    def publish(self, node: NodeId, seq: int, body: bytes) -> None:
        check(node, seq, body, self.store.max_body)
        self.store.publish(node, seq, body)
        if (session := self._session) is None:
            return  # others ask for it when the link is up
        try:
            # A put that blocks would hand a slow neighbour's pace to the trainer; what is dropped is repaired.
            drop, remote = self._zenoh.CongestionControl.DROP, self._zenoh.Locality.REMOTE
            key = f"{self.prefix}/body/{node}"
            session.put(key, body, attachment=str(seq).encode(), congestion_control=drop, allowed_destination=remote)
            self.counts["put"] += 1
        except self._zenoh.ZError as error:
            self._trouble = f"the last put failed ({error})"

    def draw(self, after: int, limit: int) -> Sequence[Received]:
        return self.store.draw(after, limit)

    def history(self, since: float, limit: int) -> Sequence[Received]:
        return self.store.history(since, limit)

    def peers(self) -> Sequence[Peer]:
        return self.store.peers()

    def last_seq(self, node: NodeId) -> int:
        return self.store.last_seq(node)

    def status(self) -> str:
        session = self._session
        try:
            links = len(session.info.transports()) if session is not None else 0
        except self._zenoh.ZError:  # closed at this moment
            links = 0
        counts = self.counts + Counter(dropped=self._inbox.dropped)
        told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "nothing moved yet"
        trouble = f"; {self._trouble}" if self._trouble else ""
        if self._closing.is_set():
            return f"closed ({told})"
        if links:
            return f"connected to {links} {'node' if links == 1 else 'nodes'} ({told}){trouble}"
        where = f"none of {', '.join(self._hubs)} answers yet" if self._hubs else "nobody has connected yet"
        return f"alone: {where}; dialling in the background, what is published is kept and given on later ({told}){trouble}"

    def close(self) -> None:
        self._closing.set()
        self._wake.set()
        session, self._session = self._session, None
        if session is not None:
            session.close()  # ends queries that are waiting
        self._inbox.close()
        self._threads[0].join(15)
        self._queries.put(None)
        for thread in self._threads[1:]:
            thread.join(15)
        self.store.close()

    # In the background: one thread dials and repairs, one writes, one answers.

    def _tend(self) -> None:
        self._dial()
        while not self._closing.is_set():
            woken = self._wake.wait(self._repair_seconds)
            self._wake.clear()
            for pause in (SETTLE, AGAIN) if woken else (0.0,):
                if self._closing.wait(pause):
                    return
                self._guarded(self._repair)

    def _dial(self) -> None:
        """A client's `open` fails when no hub answers; a peer's returns and goes on dialling by itself."""
        pause = 0.5
        while not self._closing.is_set():
            try:
                session = self._zenoh.open(to_config(self._zenoh, self._settings))
                break
            except self._zenoh.ZError as error:
                self._trouble = str(error).split("  at ")[0].strip()
                self._closing.wait(pause)
                pause = min(2 * pause, 15)
        else:
            return
        remote = self._zenoh.Locality.REMOTE
        self._declared = [
            session.declare_subscriber(f"{self.prefix}/body/*", self._on_body, allowed_origin=remote),
            session.declare_queryable(f"{self.prefix}/have/{self.node}", self._on_query, allowed_origin=remote),
            session.declare_queryable(f"{self.prefix}/archive/{self.node}", self._on_query, allowed_origin=remote),
            session.info.declare_transport_events_listener(lambda _: self._wake.set(), history=True),
        ]
        self._trouble, self._session = "", session
        self._wake.set()
        if self._closing.is_set():
            session.close()

    def _on_body(self, sample: Any) -> None:
        """On a thread of zenoh's: copy, enqueue, return."""
        node, seq = str(sample.key_expr).rsplit("/", 1)[1], sample.attachment.to_bytes() if sample.attachment else b""
        if len(seq) > 20 or not seq.isdigit() or problem(node, int(seq), len(sample.payload), self.store.max_body):
            self.counts["malformed"] += 1
            return
        self._inbox.put((node, int(seq), time.time(), sample.payload.to_bytes()))

    def _on_query(self, query: Any) -> None:
        try:
            self._queries.put_nowait(query)
        except queue.Full:
            query.drop()
            self.counts["unanswered"] += 1

    def _write(self) -> None:
        while arrivals := self._inbox.take(64):
            self._guarded(lambda arrivals=arrivals: self._take("received", arrivals))

    def _take(self, word: str, arrivals: Sequence[Arrival]) -> None:
        good = [one for one in arrivals if self._accepted(one)]
        self.counts["not accepted"] += len(arrivals) - len(good)
        before = {node: self.store.newest_seq(node) for node in {node for node, *_ in good}}
        self.counts[word] += self.store.add(good, time.time(), local=False)
        for node, seq, *_ in sorted(good):
            if seq > before[node] + 1 and word == "received":
                self._wake.set()  # a gap
            before[node] = max(before[node], seq)

    def _accepted(self, arrival: Arrival) -> bool:
        try:
            return self._accept is None or self._accept(arrival[0], arrival[1], arrival[3])
        except Exception as error:  # one envelope that breaks the check must not take its batch along
            self._trouble = f"accept failed with {type(error).__name__}: {error}"
            return False

    def _serve(self) -> None:
        while (query := self._queries.get()) is not None:
            self._guarded(lambda query=query: self._answer(query))

    def _answer(self, query: Any) -> None:
        with query:
            now, asked = time.time(), str(query.key_expr)
            if asked.startswith(f"{self.prefix}/have/"):
                age, limit = float(query.parameters.get("since") or 0), int(query.parameters.get("limit") or 0)
                recent = self.store.recent(now - age, max(0, min(limit, 10_000)))
                query.reply(f"{self.prefix}/have/{self.node}", encode(recent, self.store.published()))
                return
            sent, key = 0, f"{self.prefix}/archive/{self.node}"
            for node, seq, born, body in self.store.fetch(decode_wanted(query.payload.to_bytes() if query.payload else b"[]", ASK)):
                # Ages, not times: the clocks of two machines differ.
                query.reply(key, body, attachment=json.dumps([node, seq, round(now - born, 3)]).encode())
                if (sent := sent + len(body)) > ANSWER_BYTES:
                    break

    def _repair(self) -> None:
        """Ask everybody what they hold, then for what is missing here; once more while that brings something."""
        age, limit = self._history
        while not self._closing.is_set():
            offers, held = dict[NodeId, dict[NodeId, list[Range]]](), self.store.held()
            for sample in self._get(f"have/*?since={age};limit={limit}"):
                try:
                    offers[str(sample.key_expr).rsplit("/", 1)[1]] = decode(sample.payload.to_bytes(), held)
                except ValueError:
                    self.counts["malformed"] += 1
            self._turn += 1
            before = self.counts["repaired"]
            for holder, wanted in plan(offers, held, limit, self._turn).items():
                for start in range(0, len(wanted), ASK):
                    part = wanted[start : start + ASK]
                    replies = self._get(f"archive/{holder}", json.dumps(part).encode())
                    found = [one for sample in replies if (one := self._reply(sample, part))]
                    if not found:
                        break  # it is away, or it lied
                    self._take("repaired", sorted(found, key=lambda one: one[:2]))
            if self.counts["repaired"] == before:
                return

    def _get(self, selector: str, payload: bytes | None = None) -> list[Any]:
        """Good replies of all who answer within 5 s. Without "no consolidation" one reply a key would survive."""
        session, zenoh = self._session, self._zenoh
        if session is None:
            return []
        how = {
            "target": zenoh.QueryTarget.ALL,
            "consolidation": zenoh.ConsolidationMode.NONE,
            "allowed_destination": zenoh.Locality.REMOTE,
        }
        return [reply.ok for reply in session.get(f"{self.prefix}/{selector}", payload=payload, timeout=5.0, **how) if reply.ok]

    def _reply(self, sample: Any, wanted: Sequence[Wanted]) -> Arrival | None:
        try:
            node, seq, age = json.loads(sample.attachment.to_bytes() if sample.attachment else b"")
            if (node, seq) in wanted and not problem(node, seq, len(sample.payload), self.store.max_body):
                return node, seq, time.time() - max(0.0, float(age)), sample.payload.to_bytes()
        except (TypeError, ValueError):
            pass
        self.counts["malformed"] += 1
        return None

    def _guarded(self, work: Callable[[], None]) -> None:
        """Nothing that a stranger sends, and no full disk, ends a thread: it is said in `status()`, and tried again later."""
        try:
            work()
        except Exception as error:
            if not self._closing.is_set():
                self.counts["failed"] += 1
                self._trouble = f"{type(error).__name__}: {error}"
