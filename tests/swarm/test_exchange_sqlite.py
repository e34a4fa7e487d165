"""The file itself: what is not ours stays untouched, pruning, many processes, memory."""

import importlib.util
import multiprocessing
import os
import resource
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from coterie.swarm.exchange import sqlite
from coterie.swarm.exchange.mounts import network_file_system
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.types import CoterieError

A, B = "a" * 64, "b" * 64


def test_some_other_file_is_an_error_that_names_it_and_stays_as_it_is(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_bytes(b"my notes, not a database" * 100)
    with pytest.raises(CoterieError, match=r"notes\.txt is not an exchange"):
        SqliteExchange(path)
    assert path.read_bytes() == b"my notes, not a database" * 100
    assert list(tmp_path.iterdir()) == [path]


def test_another_programs_database_is_an_error_and_stays_as_it_is(tmp_path):
    path = tmp_path / "theirs.sqlite"
    with sqlite3.connect(path) as theirs:
        theirs.execute("create table envelopes (what)")
    theirs.close()
    before = path.read_bytes()
    with pytest.raises(CoterieError, match=r"theirs\.sqlite is another program's database"):
        SqliteExchange(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_version_is_an_error(tmp_path):
    path = tmp_path / "x.sqlite"
    SqliteExchange(path).close()
    with sqlite3.connect(path) as later:
        later.execute("pragma user_version = 9")
    later.close()
    with pytest.raises(CoterieError, match="an exchange of version 9, not 2"):
        SqliteExchange(path)


@pytest.mark.parametrize(("start", "length"), [(0, 100), (4096, 40000), (100, 8)])
def test_a_damaged_file_is_an_error_that_names_it_and_stays_as_it_is(tmp_path, start, length):
    """The header, the tables' pages, and a few bytes of the schema's page."""
    path = tmp_path / "x.sqlite"
    exchange = SqliteExchange(path)
    for seq in range(50):
        exchange.publish(A, seq, b"x" * 3000)
    exchange.close()
    data = bytearray(path.read_bytes())
    data[start : start + length] = b"\xa5" * length
    path.write_bytes(data)
    with pytest.raises(CoterieError, match=r"x\.sqlite.*(damaged|not an exchange).*Nothing was changed"):
        SqliteExchange(path)
    assert path.read_bytes() == bytes(data)


def test_a_full_disk_is_an_error_and_what_was_there_stays(tmp_path, monkeypatch):
    exchange = SqliteExchange(tmp_path / "x.sqlite")
    exchange.publish(A, 0, b"x")
    with exchange._connection() as connection:
        connection.execute("pragma max_page_count = 30")
    with pytest.raises(CoterieError, match=r"x\.sqlite: database or disk is full; see that the disk has room"):
        exchange.publish(A, 1, bytes(200_000))
    assert [one.seq for one in exchange.draw(0, 9)] == [0]
    exchange.publish(A, 1, b"small")
    assert exchange.last_seq(A) == 1


def test_prune_by_age_takes_the_old_ones_and_numbers_are_not_used_again(tmp_path):
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    now = time.time()
    exchange.add([(A, seq, now - 200, b"old") for seq in range(40)], now, local=False)
    exchange.add([(A, 40, now, b"new")], now, local=False)
    assert exchange.prune(now) == 40
    assert [(one.number, one.seq) for one in exchange.draw(0, 99)] == [(41, 40)]
    assert exchange.prune(now + 101) == 1
    exchange.publish(A, 41, b"x")
    assert [(one.number, one.seq) for one in exchange.draw(0, 99)] == [(42, 41)]
    assert [(peer.node, peer.envelopes) for peer in exchange.peers()] == [(A, 42)]


def test_what_was_pruned_does_not_come_back(tmp_path):
    """Archives that still hold it would refill each other for ever, and a replay would be drawn twice."""
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    now = time.time()
    exchange.add([(A, 7, now - 200, b"old")], now, local=False)
    exchange.prune(now)
    assert exchange.add([(A, 7, now, b"old"), (A, 6, now, b"older"), (B, 7, now, b"other")], now, local=False) == 1
    assert [(one.node, one.seq) for one in exchange.draw(0, 9)] == [(B, 7)]
    assert exchange.held() == {A: (7, set()), B: (-1, {7})}
    assert (exchange.newest_seq(A), exchange.last_seq(A)) == (7, -1), "nothing of it was published here"


def test_a_far_number_in_a_node_s_name_does_not_move_its_own(tmp_path):
    """Breaks when one count serves for what was published here and what others sent: A would go on after 2^62."""
    exchange = SqliteExchange(tmp_path / "x.sqlite")
    for seq in range(3):
        exchange.publish(A, seq, b"x")
    exchange.add([(A, 2**62, time.time(), b"of a stranger")], time.time(), local=False)
    assert (exchange.last_seq(A), exchange.newest_seq(A)) == (2, 2**62)
    assert exchange.last_seq(B) == -1


def test_a_far_number_that_is_pruned_does_not_shut_a_node_out(tmp_path):
    """Breaks when the mark of what was pruned jumps to it: all that A sends is then below the mark, and not taken."""
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    now = time.time()
    exchange.add([(A, 2**62, now - 200, b"of a stranger"), (A, 5, now, b"new")], now, local=False)
    assert exchange.prune(now) == 1
    assert exchange.add([(A, 6, now, b"newer")], now, local=False) == 1
    assert exchange.held()[A] == (4, {5, 6}), "below the lowest that is here nothing is taken, as before"


def test_what_is_published_here_is_kept_whatever_others_sent_in_its_name(tmp_path):
    """Its number was taken, and one far beyond it was pruned when nothing else of it was here."""
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    now = time.time()
    exchange.add([(A, 2**62, now - 200, b"of a stranger"), (B, 7, now, b"of a stranger")], now, local=False)
    exchange.prune(now)
    assert exchange.held()[A] == (2**62, set())
    exchange.publish(A, 0, b"mine")
    exchange.publish(A, 0, b"mine again")
    exchange.publish(B, 7, b"mine too")
    assert [(one.node, one.seq, one.body) for one in exchange.draw(0, 9)] == [(A, 0, b"mine"), (B, 7, b"mine too")]


def test_what_was_published_here_and_pruned_is_not_published_again(tmp_path):
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    exchange.publish(A, 0, b"x")
    assert exchange.prune(time.time() + 101) == 1
    exchange.publish(A, 0, b"x")
    assert exchange.draw(0, 9) == []


def test_publishing_keeps_the_file_within_its_bytes(tmp_path):
    exchange = SqliteExchange(tmp_path / "x.sqlite", max_body=20_000, keep_bytes=1_000_000)
    for seq in range(400):  # 8 MB
        exchange.publish(A, seq, os.urandom(20_000))
    kept = [one.seq for one in exchange.draw(0, 999)]
    assert kept == list(range(kept[0], 400))  # the newest, without a hole
    assert 20 <= len(kept) <= 50 + sqlite.PRUNE_EVERY
    exchange.prune(time.time())
    assert 20 <= len(exchange.draw(0, 999)) <= 50
    exchange.close()
    assert (tmp_path / "x.sqlite").stat().st_size < 1_000_000 + (sqlite.PRUNE_EVERY + 20) * 25_000
    with pytest.raises(CoterieError, match="keep_bytes = 1000 is too small"):
        SqliteExchange(tmp_path / "y.sqlite", keep_bytes=1000)


def test_pruning_lets_publishers_between(tmp_path, monkeypatch):
    """One transaction for all would keep them out: here a second writer, that does not wait, gets in after each batch."""
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    now = time.time()
    exchange.add([(A, seq, now - 200, b"old") for seq in range(48)], now, local=False)
    other = sqlite3.connect(tmp_path / "x.sqlite", timeout=0, isolation_level=None)
    doomed, between = exchange._doomed, []

    def look(connection, when):
        other.execute("begin immediate")
        other.execute("rollback")
        between.append(True)
        return doomed(connection, when)

    monkeypatch.setattr(exchange, "_doomed", look)
    assert exchange.prune(now) == 48
    assert len(between) == 48 / sqlite.PRUNE_BATCH + 1
    other.close()


def test_silent_nodes_are_forgotten_in_the_end(tmp_path):
    """Made-up names would else fill the table for ever."""
    exchange = SqliteExchange(tmp_path / "x.sqlite", keep_seconds=100)
    now = time.time()
    exchange.add([(f"n{i}", 0, now, b"x") for i in range(50)], now, local=False)
    exchange.publish(A, 7, b"x")
    exchange.prune(now + 500)
    assert len(exchange.peers()) == 51
    exchange.prune(now + 1100)
    assert [peer.node for peer in exchange.peers()] == [A]  # who publishes here stays: else its seqs would begin again at 0
    assert exchange.last_seq(A) == 7


def publish_many(path, node, count):
    exchange = SqliteExchange(path)
    for seq in range(count):
        exchange.publish(node, seq, f"{node} {seq} ".encode() * 100)
    exchange.close()


def test_processes_that_start_together_all_get_in_and_readers_miss_nothing(tmp_path):
    """All make the file at once. A reader polls meanwhile: numbers must appear in order, else `after` would skip some."""
    context = multiprocessing.get_context("fork")
    path = tmp_path / "x.sqlite"
    workers = [context.Process(target=publish_many, args=(path, f"n{i}", 40)) for i in range(4)]
    for worker in workers:
        worker.start()
    reader, seen, end = SqliteExchange(path), [], time.monotonic() + 60
    while len(seen) < 160 and time.monotonic() < end:
        seen += reader.draw(seen[-1].number if seen else 0, 50)
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert sorted((one.node, one.seq) for one in seen) == [(f"n{i}", seq) for i in range(4) for seq in range(40)]
    assert all(one.body == f"{one.node} {one.seq} ".encode() * 100 for one in seen)


def test_an_exchange_made_before_a_fork_works_on_both_sides(tmp_path):
    """A connection carried across a fork corrupts the file (sqlite.org/howtocorrupt.html, 2.6)."""
    exchange = SqliteExchange(tmp_path / "x.sqlite")
    exchange.publish(A, 0, b"x")
    parents = list(exchange._connections.values())

    def work():
        exchange.publish(B, 0, b"y")
        with exchange._connection() as connection:
            assert all(connection is not other for other in parents)
        exchange.close()

    child = multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
    exchange.publish(A, 1, b"z")
    assert [(one.node, one.seq) for one in exchange.draw(0, 9)] == [(A, 0), (B, 0), (A, 1)]


def test_threads_that_come_and_go_leave_few_connections(tmp_path):
    exchange = SqliteExchange(tmp_path / "x.sqlite")
    for seq in range(50):
        thread = threading.Thread(target=exchange.publish, args=(A, seq, b"x"))
        thread.start()
        thread.join()
    assert len(exchange._connections) < 10


def rss():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
def test_memory_is_flat_over_10000_groups(tmp_path):
    exchange = SqliteExchange(tmp_path / "x.sqlite")
    body = os.urandom(2000)
    for seq in range(1000):
        exchange.publish(A, seq, body)
    before, last = rss(), 0
    for seq in range(1000, 10_000):
        exchange.publish(A, seq, body)
        if seq % 500 == 0:
            last = exchange.draw(last, 500)[-1].number
    assert rss() - before < 4_000_000  # 18 MB went through


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident size from /proc")
def test_10000_groups_through_exchange_gate_and_pool_leave_memory_and_files_flat(tmp_path):
    """The loop of the bench. From a fifth of the way to the end 17 MB of envelopes pass; breaks when a part keeps what it saw."""
    path = Path(__file__).parents[2] / "bench" / "swarm_overhead.py"
    spec = importlib.util.spec_from_file_location("swarm_overhead", path)
    assert spec
    assert spec.loader
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    found = bench.memory(tmp_path / "memory", 10_000)
    assert found["admitted"] == 10_000
    assert found["bytes"] > 20_000_000
    warm = [one for one in found["held"] if one["groups"] >= 2000]
    assert len(warm) > 10
    assert max(one["traced"] for one in warm) - warm[0]["traced"] < 1_000_000
    assert max(one["rss"] for one in warm) - warm[0]["rss"] < 6_000_000
    for one in warm:
        assert one["files"]["exchange.sqlite"] < found["keep_bytes"] + sqlite.PRUNE_EVERY * 8192
        assert one["files"]["pool.jsonl"] < 5_000_000
        assert one["files"]["gate.sqlite"] < 5_000_000  # 20,000 fingerprints, and nothing of what is older


MOUNTS = r"""
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/local\040disk xfs rw 0 0
//nas/x /mnt/x cifs rw 0 0
tmpfs /mnt/x/fast tmpfs rw 0 0
""".strip()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/root/x.sqlite", None),
        ("/home/me/x.sqlite", "nfs4"),
        ("/homes/x.sqlite", None),
        ("/home/local disk/x.sqlite", None),
        ("/mnt/x/y/z.sqlite", "cifs"),
        ("/mnt/x/fast/z.sqlite", None),
    ],
)
def test_the_longest_mount_point_says_the_file_system(path, kind):
    assert network_file_system(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_warned_about_and_in_the_status(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "mounts", lambda: f"server:/x {tmp_path} nfs4 rw 0 0")
    with pytest.warns(UserWarning, match=r"network file system \(nfs4\).*the folder exchange"):
        exchange = SqliteExchange(tmp_path / "x.sqlite")
    assert "nfs4" in exchange.status()


def test_another_process_that_comes_and_goes_leaves_the_wal_of_a_process_with_threads(tmp_path):
    """A thread that closes a file of its own drops the locks of its process, and whoever closes next would remove the WAL."""
    path = tmp_path / "swarm.sqlite"
    exchange = SqliteExchange(path)
    exchange.publish("a", 0, b"first")
    thread = threading.Thread(target=exchange.draw, args=(0, 9))
    thread.start()
    thread.join()
    code = f"from coterie.swarm.exchange.sqlite import SqliteExchange as S; e = S({str(path)!r}); e.draw(0, 9); e.close()"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert path.with_name("swarm.sqlite-wal").exists()
    exchange.publish("a", 1, b"second")
    exchange.close()
    again = SqliteExchange(path)
    assert [e.body for e in again.draw(0, 9)] == [b"first", b"second"]
    again.close()
