"""The exchange of one machine, and the store behind the other two: one SQLite file in WAL mode.

Why a file: no port, no daemon, nothing to start first; a late joiner reads a table; a process that is killed leaves the others
and the file alone. SQLite has one writer at a time and gives out ids inside the write, so ids become visible in their own order and
`id > last` misses nothing. `autoincrement` keeps an id from being used again after pruning.

What `publish` returned for survives `kill -9` (the write is with the operating system). After a power cut the last moments may be
gone, never the file: that is `synchronous=normal`, https://sqlite.org/pragma.html#pragma_synchronous.

WAL needs memory shared between its processes, so all of them must be on one host: https://sqlite.org/wal.html. On a network file
system use `FolderExchange`.
"""

import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from coterie.swarm.envelope import MAX_BYTES
from coterie.swarm.exchange.base import check
from coterie.swarm.exchange.mounts import mounts, network_file_system
from coterie.swarm.words import NodeId, Peer, Received
from coterie.types import CoterieError

APPLICATION, VERSION = 0x5341504F, 2  # "SAPO" in the file's header, and the version of what follows
SCHEMA = (
    # time: received here. born: when it was first published, reckoned from the age that it came with; old things stay old.
    """create table envelopes (id integer primary key autoincrement, node text not null, seq integer not null, time real not null,
       born real not null, local integer not null, body blob not null, unique (node, seq))""",
    "create index envelopes_by_birth on envelopes (born)",
    # last_seq, published: the highest seq that was kept, and of those published here. pruned: up to where seqs were deleted. What
    # is at or below it is not taken again, else archives would refill each other.
    """create table nodes (node text primary key, last_seen real not null, envelopes integer not null, last_seq integer not null,
       pruned integer not null default -1, published integer not null) without rowid""",
    f"pragma application_id = {APPLICATION}",
    f"pragma user_version = {VERSION}",
)
PRUNE_EVERY, PRUNE_BATCH = 64, 16


class SqliteExchange:
    """Every process and every thread gets its own connection on first use, so an object may cross a fork."""

    def __init__(
        self,
        path: str | Path,
        *,
        max_body: int = MAX_BYTES,
        keep_seconds: float = 6 * 3600,
        keep_bytes: int = 256_000_000,
    ) -> None:
        """`keep_bytes` counts pages in use; the file itself stays as large as it ever was. Needs room for two bodies."""
        if keep_bytes < 2 * max_body + 65536:
            raise CoterieError(
                f"keep_bytes = {keep_bytes} is too small for bodies of up to {max_body} bytes: give at least twice that"
            )
        self.path, self.max_body, self.keep_seconds, self.keep_bytes = Path(path), max_body, keep_seconds, keep_bytes
        self._connections: dict[tuple[int, int], sqlite3.Connection] = {}
        self._added, self._closed = 0, False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._network = network_file_system(self.path, mounts())
        if self._network:
            warnings.warn(
                f"{self.path} is on a network file system ({self._network}), where SQLite's WAL loses data when several hosts "
                "write: use a local path, or the folder exchange",
                stacklevel=2,
            )
        with self._connection() as connection:
            found = connection.execute("pragma quick_check(1)").fetchone()[0]
            if found != "ok":
                raise CoterieError(
                    f"{self.path} is damaged ({' '.join(found.split())}). Nothing was changed: move it away, and start again"
                )

    def publish(self, node: NodeId, seq: int, body: bytes) -> None:
        check(node, seq, body, self.max_body)
        now = time.time()
        self.add([(node, seq, now, body)], now, local=True)

    def draw(self, after: int, limit: int) -> Sequence[Received]:
        return self._select("where id > ? order by id limit ?", after, max(limit, 0))

    def history(self, since: float, limit: int) -> Sequence[Received]:
        return self._select("where time >= ? order by id desc limit ?", since, max(limit, 0))[::-1]

    def peers(self) -> Sequence[Peer]:
        with self._connection() as connection:
            return [Peer(*row) for row in connection.execute("select node, last_seen, envelopes from nodes order by node")]

    def last_seq(self, node: NodeId) -> int:
        return self._highest("published", node)

    def status(self) -> str:
        with self._connection() as connection:
            count, nodes = connection.execute("select (select count(*) from envelopes), (select count(*) from nodes)").fetchone()
        doubt = f"; on a network file system ({self._network}), which is not safe" if self._network else ""
        return f"{count} envelopes of {nodes} nodes in {self.path}{doubt}"

    def close(self) -> None:
        """Connections of a parent process are left alone: closing them here would be another process's business."""
        self._closed = True
        for (process, _), connection in self._connections.items():
            if process == os.getpid():
                connection.close()

    # What the replicators need beside the contract.

    def newest_seq(self, node: NodeId) -> int:
        """The highest seq known of a node, from wherever it came, pruned ones too; -1 for none."""
        return self._highest("last_seq", node)

    def add(self, envelopes: Iterable[tuple[NodeId, int, float, bytes]], now: float, local: bool) -> int:
        """Keep (node, seq, born, body) in one transaction; how many were new.

        What is published here (`local`) is kept whatever others sent before under its node and seq, or was pruned of that: theirs
        may be anybody's.
        """
        added = 0
        with self._connection() as connection:
            connection.execute("begin immediate")
            for node, seq, born, body in envelopes:
                if local:
                    connection.execute("delete from envelopes where node = ? and seq = ? and not local", (node, seq))
                new = connection.execute(
                    """insert into envelopes (node, seq, time, born, local, body) select :node, :seq, :now, :born, :local, :body
                       where not exists (select 1 from nodes where node = :node and pruned >= :seq
                                         and (not :local or published >= :seq))
                       on conflict (node, seq) do nothing""",
                    {"node": node, "seq": seq, "now": now, "born": min(born, now), "local": local, "body": body},
                ).rowcount
                if new:
                    connection.execute(
                        """insert into nodes (node, last_seen, envelopes, last_seq, published) values (:node, :now, 1, :seq, :here)
                           on conflict do update set last_seen = max(last_seen, :now), envelopes = envelopes + 1,
                           last_seq = max(last_seq, :seq), published = max(published, :here)""",
                        {"node": node, "now": now, "seq": seq, "here": seq if local else -1},
                    )
                added += new
            connection.execute("commit")
        before, self._added = self._added, self._added + added
        if before // PRUNE_EVERY != self._added // PRUNE_EVERY:
            self.prune(now)
        return added

    def held(self) -> dict[NodeId, tuple[int, set[int]]]:
        """Of each node: the highest seq pruned, and the seqs that are here."""
        with self._connection() as connection:
            found = {node: (pruned, set[int]()) for node, pruned in connection.execute("select node, pruned from nodes")}
            for node, seq in connection.execute("select node, seq from envelopes"):
                found.setdefault(node, (-1, set()))[1].add(seq)
        return found

    def recent(self, since: float, limit: int) -> dict[NodeId, list[int]]:
        """Seqs by node of the newest `limit` born since a time."""
        return self._seqs("where born >= ? order by id desc limit ?", since, limit)

    def published(self) -> dict[NodeId, list[int]]:
        """Seqs by node of everything published through this file."""
        return self._seqs("where local order by node, seq")

    def fetch(self, wanted: Iterable[tuple[NodeId, int]]) -> Iterator[tuple[NodeId, int, float, bytes]]:
        """(node, seq, born, body) of those that are here."""
        with self._connection() as connection:
            for node, seq in wanted:
                query = "select node, seq, born, body from envelopes where node = ? and seq = ?"
                yield from connection.execute(query, (node, seq)).fetchall()

    def prune(self, now: float) -> int:
        """Delete what is too old, then the oldest until the rest fits: a few rows a transaction, so that publishers get between."""
        total = 0
        with self._connection() as connection:
            while gone := self._doomed(connection, now):
                connection.execute("begin immediate")
                connection.executemany("delete from envelopes where id = ?", [(number,) for number, _, _ in gone])
                # Never past what is here: a number far ahead, that somebody may have made up, must not shut out those below it.
                connection.executemany(
                    """update nodes set pruned = max(pruned, min(:seq, coalesce(
                       (select min(seq) - 1 from envelopes where node = :node), :seq))) where node = :node""",
                    [{"node": node, "seq": seq} for _, node, seq in gone],
                )
                connection.execute("commit")
                total += len(gone)
            # Made-up names cost a row each, so they end too. Not those who publish here: their seqs would begin again at 0.
            connection.execute(
                "delete from nodes where last_seen < ? and published < 0 and node not in (select node from envelopes)",
                (now - 10 * self.keep_seconds,),
            )
        return total

    def _doomed(self, connection: sqlite3.Connection, now: float) -> list[tuple[int, str, int]]:
        query = "select id, node, seq from envelopes"
        old = connection.execute(f"{query} where born < ? order by id limit ?", (now - self.keep_seconds, PRUNE_BATCH)).fetchall()
        if old:
            return old
        pages, free, size = (
            connection.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size <= self.keep_bytes:
            return []
        return connection.execute(f"{query} order by id limit ?", (PRUNE_BATCH,)).fetchall()[:-1]  # one stays

    def _highest(self, what: str, node: NodeId) -> int:
        with self._connection() as connection:
            row = connection.execute(f"select {what} from nodes where node = ?", (node,)).fetchone()
        return row[0] if row else -1

    def _seqs(self, clause: str, *values: float) -> dict[NodeId, list[int]]:
        found: dict[NodeId, list[int]] = {}
        with self._connection() as connection:
            for node, seq in connection.execute(f"select node, seq from envelopes {clause}", values):
                found.setdefault(node, []).append(seq)
        return found

    def _select(self, clause: str, *values: float) -> list[Received]:
        with self._connection() as connection:
            rows = connection.execute(f"select id, node, seq, time, body from envelopes {clause}", values)
            return [Received(*row) for row in rows]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """This thread's connection; what fails is undone, and said in words that name the file."""
        if self._closed:
            raise CoterieError(f"{self.path} was closed by this process: make a new exchange")
        key = (os.getpid(), threading.get_ident())  # a thread that takes over an ended one's ident takes over its connection
        connection = None
        try:
            connection = self._connections.get(key) or self._open()
            self._connections[key] = connection
            yield connection
        except sqlite3.Error as error:
            raise CoterieError(f"{self.path}: {self._words(error)}") from error
        finally:
            if connection is not None and not self._closed and connection.in_transaction:
                connection.execute("rollback")

    def _words(self, error: sqlite3.Error) -> str:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return f"the file is damaged or not an exchange ({error}). Nothing was changed: move it away, and start again"
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return "another process has held the file for 30 s; end it, or try again"
        return f"{error}; see that the disk has room and that you may write there"

    def _open(self) -> sqlite3.Connection:
        # Only before this process's first connection: closing the file would drop the locks of those that are open, another process
        # would take itself for the last one and remove the WAL under them (https://sqlite.org/howtocorrupt.html, section 2.2).
        first = all(process != os.getpid() for process, _ in self._connections)
        if first and self.path.exists() and self.path.stat().st_size:
            with self.path.open("rb") as file:
                if file.read(16) != b"SQLite format 3\0":
                    raise CoterieError(
                        f"{self.path} is not an exchange but some other file. Nothing was changed: give another path"
                    )
        connection = sqlite3.connect(self.path, timeout=30, isolation_level=None, check_same_thread=False)
        try:
            if self._is_new(connection):
                _to_wal(connection)  # only now: changing the mode writes to the file, which may be somebody's
                connection.execute("begin immediate")
                if self._is_new(connection):  # another process may have been first
                    for statement in SCHEMA:
                        connection.execute(statement)
                connection.execute("commit")
            for setting in ("synchronous = normal", "journal_size_limit = 67108864"):
                connection.execute(f"pragma {setting}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_new(self, connection: sqlite3.Connection) -> bool:
        tables = connection.execute("select count(*) from sqlite_master").fetchone()[0]
        application, version = (connection.execute(f"pragma {name}").fetchone()[0] for name in ("application_id", "user_version"))
        if application == APPLICATION and version == VERSION:
            return False
        if tables or application:
            what = (
                f"an exchange of version {version}, not {VERSION}" if application == APPLICATION else "another program's database"
            )
            raise CoterieError(f"{self.path} is {what}. Nothing was changed: give another path")
        return True


def _to_wal(connection: sqlite3.Connection) -> None:
    """Of processes that start together some get "locked" here at once, whatever the timeout (6 of 200 in a trial): two that read
    want to write, and SQLite waits for neither."""
    for attempt in range(200):
        try:
            connection.execute("pragma journal_mode = wal")
            return
        except sqlite3.OperationalError:
            if attempt == 199:
                raise
            time.sleep(0.05)
