"""The exchange of machines that share a file system: a spool directory.

    <folder>/<node>/<seq>.envelope      one file an envelope, written under another name, flushed and renamed

As in maildir (https://cr.yp.to/proto/maildir.html): a name appears when its bytes are there, a rename is atomic on local file
systems and on NFS's server, and nobody writes where another writes. No locks, which is what network file systems do badly.

Files have no common order, so each reader numbers what it sees. Numbers live in the reader's own SQLite file (`store`), which must
be local to its machine, as with zenoh: `draw` looks for new files, copies them there, and reads from there. So numbers survive a
restart, and readers that share a store share numbers. Two readers with two stores number the same envelopes differently.

A node deletes its own old files only; the folder of a node that is gone stays until somebody removes it.
"""

import os
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from coterie.swarm.exchange.base import NODE, check
from coterie.swarm.exchange.sqlite import PRUNE_EVERY, SqliteExchange
from coterie.swarm.words import NodeId, Peer, Received
from coterie.types import CoterieError

NAME = re.compile(r"(\d{19})\.envelope")
LOOK = 1000  # files read at most by one draw, so that it returns


class FolderExchange:
    def __init__(
        self,
        folder: str | Path,
        store: str | Path | SqliteExchange,
        *,
        accept: Callable[[NodeId, int, bytes], bool] | None = None,
    ) -> None:
        """Makes the folder, not its parents. When it is away later, what is published waits in `store`.

        `accept` says whether a file is what its name claims (its signature): `envelope.genuine`. What it refuses leaves no trace in
        `store`. Without it, who may write to the folder may write in anybody's name, and a node is heard as far as others let it.
        """
        self.folder, self._accept = Path(folder), accept
        self.store = store if isinstance(store, SqliteExchange) else SqliteExchange(store)
        try:
            self.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise CoterieError(
                f"cannot use {self.folder} ({error}): give the folder that the nodes share, on a mounted disk"
            ) from error
        self._behind, self._written, self._skipped = True, 0, 0  # behind: a process may have ended between its two writes
        self._trouble = ""
        self._seen: dict[NodeId, set[int]] | None = None
        """Files that need no look: in the store, or skipped. Only those that still exist."""

    def publish(self, node: NodeId, seq: int, body: bytes) -> None:
        check(node, seq, body, self.store.max_body)
        self.store.publish(node, seq, body)
        self._behind = self._behind or not self._spool(node, seq, body)
        self._catch_up()

    def draw(self, after: int, limit: int) -> Sequence[Received]:
        self._look()
        return self.store.draw(after, limit)

    def history(self, since: float, limit: int) -> Sequence[Received]:
        self._look()
        return self.store.history(since, limit)

    def peers(self) -> Sequence[Peer]:
        return self.store.peers()

    def last_seq(self, node: NodeId) -> int:
        return self.store.last_seq(node)

    def status(self) -> str:
        trouble = f"; waiting for {self.folder}: {self._trouble}" if self._trouble else ""
        skipped = f"; {self._skipped} files skipped, empty, too large or not what they claim" if self._skipped else ""
        return f"{self.store.status()}, shared through {self.folder}{trouble}{skipped}"

    def close(self) -> None:
        self._catch_up()
        self.store.close()

    def _spool(self, node: NodeId, seq: int, body: bytes) -> bool:
        """Whether the file is there, the first one of its name staying as it is."""
        home = self.folder / node
        final, partial = home / f"{seq:019d}.envelope", home / f".{seq}.{os.getpid()}.partial"
        try:
            if final.exists():
                return True
            home.mkdir(exist_ok=True)  # no parents: where the disk is not mounted, this would fill the one below
            with partial.open("wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(final)
            _flush_names(home)
            self._written += 1
            if self._written % PRUNE_EVERY == 0:
                self._tidy(home, time.time())
        except OSError as error:
            self._trouble = f"{error}; what is published is kept in {self.store.path} and written later"
            return False
        return True

    def _catch_up(self) -> None:
        """Write what this store published and the folder lacks. Below the newest file that this store knows as its own nothing is
        missing: it was pruned. Others' files in this node's name, of any number, do not count."""
        if not self._behind:
            return
        for node, seqs in self.store.published().items():
            newest = max(self._files(self.folder / node).keys() & set(seqs), default=-1)
            lacking = [(node, seq) for seq in seqs if seq > newest]
            if not all(self._spool(node, seq, body) for _, seq, _, body in self.store.fetch(lacking)):
                return
        self._behind, self._trouble = False, ""

    def _tidy(self, home: Path, now: float) -> None:
        used = 0
        for _, path in sorted(self._files(home).items(), reverse=True):
            facts = path.stat()
            used += facts.st_size
            if used > self.store.keep_bytes or facts.st_mtime < now - self.store.keep_seconds:
                path.unlink(missing_ok=True)
        for path in home.glob(".*.partial"):
            if path.stat().st_mtime < now - 3600:  # of a process that was killed while it wrote
                path.unlink(missing_ok=True)

    def _look(self) -> None:
        """Copy what is new into the store, nodes by turns."""
        self._catch_up()
        if self._seen is None:
            self._seen = {node: here for node, (_, here) in self.store.held().items()}
        found: list[tuple[int, NodeId, int, Path]] = []
        try:
            for home in os.scandir(self.folder):
                if NODE.fullmatch(home.name) and home.is_dir(follow_symlinks=False):
                    files = self._files(Path(home.path))
                    seen = self._seen[home.name] = self._seen.get(home.name, set()) & files.keys()
                    found += [(turn, home.name, seq, files[seq]) for turn, seq in enumerate(sorted(files.keys() - seen))]
        except OSError as error:
            self._trouble = str(error)
            return
        if not self._behind:
            self._trouble = ""
        found = sorted(found)[:LOOK]
        for start in range(0, len(found), 64):
            part = found[start : start + 64]
            read = [(node, seq, self._read(node, seq, path)) for _, node, seq, path in part]
            self.store.add([(node, seq, *facts) for node, seq, facts in read if facts], time.time(), local=False)
            for node, seq, facts in read:
                if facts is not None:
                    self._seen[node].add(seq)

    def _read(self, node: NodeId, seq: int, path: Path) -> tuple[float, bytes] | tuple[()] | None:
        """When it was written, and its bytes; () for a file that cannot be an envelope, None to try again."""
        try:
            facts = path.stat()
            if 0 < facts.st_size <= self.store.max_body:
                body = path.read_bytes()
                if self._accept is None or self._accept(node, seq, body):
                    return facts.st_mtime, body
        except OSError as error:  # also when its node has just pruned it
            self._trouble = str(error)
            return None
        self._skipped += 1
        return ()

    def _files(self, home: Path) -> dict[int, Path]:
        try:
            with os.scandir(home) as entries:
                named = ((NAME.fullmatch(entry.name), entry) for entry in entries if entry.is_file(follow_symlinks=False))
                return {int(match[1]): Path(entry.path) for match, entry in named if match}
        except FileNotFoundError:
            return {}


def _flush_names(home: Path) -> None:
    """A rename is safe once its directory is flushed; Windows has no such call, and flushes by itself."""
    if hasattr(os, "O_DIRECTORY"):
        handle = os.open(home, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
