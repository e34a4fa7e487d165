"""What a gate remembers across restarts, in one SQLite file of its node: windows, reputations, fingerprints and counters.

SQLite because each envelope changes one row: a JSON file would be written whole each time or lose the last seconds at a kill, and
then take a replay for new. Journal mode WAL with `synchronous=normal`: nothing is lost when the process dies; a power cut may lose
the last moment. Others may read while the gate writes (`read_rows`); only one gate may write.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from coterie.swarm.gate.duplicates import Fingerprints
from coterie.swarm.gate.replay import Window
from coterie.swarm.gate.reputation import KNOWN, Reputation
from coterie.swarm.gate.words import Row
from coterie.swarm.words import NodeId
from coterie.types import CoterieError

_TABLES = """
create table if not exists gate_nodes(node text primary key, top integer, bits blob, newest real,
    useful real, dull real, faults real, at real);
create table if not exists gate_texts(digest blob primary key, node text);
create table if not exists gate_rows(id integer primary key, rows text);
"""

# By what it was when it was last judged: without decay, which would need to be computed for each row. New keys thus push out no
# node that was known, and of two known ones that stays which was heard last.
_FIRST = f"from gate_nodes order by useful + dull >= {KNOWN} desc, newest desc limit ?"

_ROW = tuple(field.name for field in fields(Row))


@dataclass(frozen=True, slots=True)
class Remembered:
    window: Window = field(default_factory=Window)
    newest: float = 0.0
    """The latest time that stands in an envelope of it."""
    reputation: Reputation = field(default_factory=Reputation)


class State:
    def __init__(self, path: Path | None, texts: int):
        self._path, self._texts = path, texts
        with self._errors():
            self._db = sqlite3.connect(path or ":memory:", isolation_level=None)
            self._db.executescript("pragma journal_mode=wal; pragma synchronous=normal; pragma busy_timeout=30000;" + _TABLES)

    def node(self, node: NodeId) -> Remembered | None:
        with self._errors():
            row = self._db.execute("select * from gate_nodes where node = ?", (node,)).fetchone()
        if row is None:
            return None
        return Remembered(Window(row[1], int.from_bytes(row[2], "little")), row[3], Reputation(*row[4:]))

    def first(self, limit: int) -> list[NodeId]:
        """The nodes to be kept in mind, the most important last: known ones (see `reputation.KNOWN`), then those last heard of."""
        with self._errors():
            rows = self._db.execute(f"select node {_FIRST}", (limit,)).fetchall()
        return [node for (node,) in reversed(rows)]

    def authors(self, prints: Fingerprints) -> Mapping[bytes, NodeId]:
        """Who sent which of these fingerprints first, for those that are remembered."""
        marks = ",".join("?" * len(prints.all))
        with self._errors():
            return dict(self._db.execute(f"select digest, node from gate_texts where digest in ({marks})", prints.all))

    def save(self, node: NodeId, about: Remembered, prints: Fingerprints | None) -> None:
        """Both or neither: a group whose fingerprints are kept is one that was judged."""
        bits = about.window.bits
        packed = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
        row = (node, about.window.top, packed, about.newest, *astuple(about.reputation))
        with self._errors(), self._transaction():
            self._db.execute("insert or replace into gate_nodes values (?, ?, ?, ?, ?, ?, ?, ?)", row)
            if prints is not None:
                self._db.executemany("insert or ignore into gate_texts values (?, ?)", [(digest, node) for digest in prints.all])

    def save_rows(self, rows: Sequence[Row], before: float, keep: int) -> None:
        """Writes the counters and forgets what is no longer needed: all but the newest fingerprints; and nodes whose envelopes are
        all from `before`, since those would be too old anyhow, except the `keep` that are `first`."""
        text = json.dumps([{name: getattr(row, name) for name in _ROW} for row in rows])
        with self._errors(), self._transaction():
            self._db.execute("insert or replace into gate_rows values (1, ?)", (text,))
            self._db.execute("delete from gate_texts where rowid <= (select max(rowid) from gate_texts) - ?", (self._texts,))
            self._db.execute(f"delete from gate_nodes where newest < ? and node not in (select node {_FIRST})", (before, keep))

    def rows(self) -> list[Row]:
        with self._errors():
            return _rows(self._db)

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def together(self) -> Iterator[None]:
        """All or nothing of what is saved within it, should the process end."""
        with self._errors(), self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._db.in_transaction:
            yield
            return
        self._db.execute("begin immediate")
        try:
            yield
        except BaseException:
            self._db.execute("rollback")
            raise
        self._db.execute("commit")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with _readable(self._path):
            yield


def read_rows(path: Path) -> list[Row]:
    """The counters that a gate, which may be running, last wrote into its file; none when there is no file yet."""
    if not path.is_file():
        return []
    with _readable(path), closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as db:
        return _rows(db)


def _rows(db: sqlite3.Connection) -> list[Row]:
    found = db.execute("select rows from gate_rows").fetchone()
    return [Row(**row) for row in json.loads(found[0])] if found else []


@contextmanager
def _readable(path: Path | None) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise CoterieError(
            f"{path}: the gate's memory cannot be used ({error}); free some disk, or move the file away: then envelopes "
            "of the last hour may be taken twice"
        ) from error
