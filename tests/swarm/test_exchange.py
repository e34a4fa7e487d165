"""What every exchange does, asked of all three: the expected values are those that were published, never read back first."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from importlib.util import find_spec

import pytest

from coterie.swarm.exchange.folder import FolderExchange
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.exchange.zenoh import ZenohExchange
from coterie.types import CoterieError

A, B, C = "a" * 64, "b" * 64, "c" * 64
PORT = 20000 + os.getpid() % 10000 * 2


def until(look, seconds=20.0):
    """What `look` returns once it is true; the last thing it returned when that never happens."""
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


class Swarm:
    """Makes the exchanges of one swarm's nodes: a shared file, a shared folder, or a port on the loopback."""

    def __init__(self, kind, home):
        self.kind, self.home, self.made = kind, home, []

    def __call__(self, node, **limits):
        exchange = self.make(node, limits)
        self.made.append(exchange)
        return exchange

    def make(self, node, limits):
        if self.kind == "sqlite":
            return SqliteExchange(self.home / "swarm.sqlite", **limits)
        store = SqliteExchange(self.home / f"{node}.sqlite", **limits)
        if self.kind == "folder":
            return FolderExchange(self.home / "shared", store)
        hub = f"tcp/127.0.0.1:{PORT}"
        return ZenohExchange("test", node, store, listen=(hub, "tcp/127.0.0.1:0"), hubs=(hub,), repair_seconds=1)

    def close(self):
        for exchange in self.made:
            exchange.close()


@pytest.fixture(params=["sqlite", "folder", "zenoh"])
def swarm(request, tmp_path):
    if request.param == "zenoh" and find_spec("zenoh") is None:
        pytest.skip("eclipse-zenoh is not installed: pip install 'coterie[swarm]'")
    swarm = Swarm(request.param, tmp_path)
    yield swarm
    swarm.close()


def bodies(received):
    return [(one.node, one.seq, one.body) for one in received]


def test_what_one_publishes_all_draw_own_included(swarm):
    a, b = swarm(A), swarm(B)
    a.publish(A, 0, b"zero")
    b.publish(B, 0, b"other")
    a.publish(A, 1, b"one")
    wanted = {(A, 0, b"zero"), (A, 1, b"one"), (B, 0, b"other")}
    for exchange in (a, b):
        assert until(lambda exchange=exchange: set(bodies(exchange.draw(0, 10))) == wanted), bodies(exchange.draw(0, 10))


def test_draw_goes_on_where_it_stopped_and_numbers_only_grow(swarm):
    a = swarm(A)
    for seq in range(7):
        a.publish(A, seq, b"%d" % seq)
    first = a.draw(0, 3)
    rest = a.draw(first[-1].number, 10)
    assert [one.seq for one in (*first, *rest)] == list(range(7))
    numbers = [one.number for one in (*first, *rest)]
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 1
    assert a.draw(numbers[-1], 10) == []
    assert a.draw(0, 0) == []


def test_the_same_node_and_seq_is_kept_once_the_first(swarm):
    a, b = swarm(A), swarm(B)
    a.publish(A, 0, b"first")
    a.publish(A, 0, b"second")
    a.publish(A, 1, b"end")
    assert until(lambda: len(b.draw(0, 10)) == 2)
    for exchange in (a, b):
        assert sorted(bodies(exchange.draw(0, 10))) == [(A, 0, b"first"), (A, 1, b"end")]


def test_a_late_joiner_reads_the_history(swarm):
    a = swarm(A)
    for seq in range(20):
        a.publish(A, seq, b"%d" % seq)
    late = swarm(C)
    assert until(lambda: len(late.history(0, 100)) == 20)
    assert sorted(one.seq for one in late.history(0, 100)) == list(range(20))
    newest = a.history(0, 5)
    assert [one.seq for one in newest] == [15, 16, 17, 18, 19]
    assert a.history(time.time() + 60, 5) == []


def test_numbers_and_envelopes_outlive_a_restart(swarm):
    a, b = swarm(A), swarm(B)
    for seq in range(5):
        a.publish(A, seq, b"%d" % seq)
    assert until(lambda: len(b.draw(0, 10)) == 5)
    before = b.draw(0, 10)
    b.close()
    a.publish(A, 5, b"5")  # while it is away
    again = swarm(B)
    assert until(lambda: len(again.draw(0, 10)) == 6)
    after = again.draw(0, 10)
    assert after[:5] == before
    assert bodies(after[5:]) == [(A, 5, b"5")]
    assert after[5].number > before[-1].number
    a.close()
    assert swarm(A).last_seq(A) == 5
    assert again.last_seq("nobody") == -1


def test_a_body_beyond_the_limit_is_refused_and_one_at_it_arrives(swarm):
    a, b = swarm(A, max_body=1000), swarm(B, max_body=1000)
    with pytest.raises(CoterieError, match="1001 bytes is not between 1 and 1000"):
        a.publish(A, 0, bytes(1001))
    with pytest.raises(CoterieError, match="0 bytes"):
        a.publish(A, 0, b"")
    with pytest.raises(CoterieError, match="seq -1"):
        a.publish(A, -1, b"x")
    a.publish(A, 0, bytes(1000))
    assert until(lambda: len(b.draw(0, 10)) == 1)


@pytest.mark.parametrize("node", ["", "../up", "a/b", "a*", "A", "a" * 65, ".", "a?b", "$*"])
def test_a_node_that_a_path_or_key_would_read_otherwise_is_refused(swarm, node):
    a = swarm(A)
    with pytest.raises(CoterieError, match="is not 1 to 64 characters"):
        a.publish(node, 0, b"x")
    assert a.draw(0, 10) == []


def test_peers_are_those_heard_of_with_how_often(swarm):
    a, b = swarm(A), swarm(B)
    start = time.time()
    for seq in range(3):
        a.publish(A, seq, b"x")
    b.publish(B, 0, b"y")
    assert until(lambda: len(b.draw(0, 10)) == 4)
    assert [(peer.node, peer.envelopes) for peer in b.peers()] == [(A, 3), (B, 1)]
    assert all(start - 1 <= peer.last_seen <= time.time() for peer in b.peers())


def test_status_is_a_sentence_before_and_after(swarm):
    a = swarm(A)
    assert a.status()
    a.publish(A, 0, b"x")
    assert a.status()


def test_threads_publish_side_by_side(swarm):
    """A connection that threads shared without care would mix their transactions."""
    a = swarm(A)
    threads = [threading.Thread(target=lambda n=n: [a.publish(f"n{n}", seq, b"x") for seq in range(25)]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = a.draw(0, 1000)
    assert sorted((one.node, one.seq) for one in found) == [(f"n{n}", seq) for n in range(4) for seq in range(25)]


def test_a_closed_exchange_says_so(swarm):
    a = swarm(A)
    a.close()
    with pytest.raises(CoterieError, match="closed"):
        a.publish(A, 0, b"x")
    a.close()


PUBLISHER = """
    import sys
    from pathlib import Path
    sys.path[:0] = sys.argv[3:]
    from test_exchange import Swarm, A
    exchange = Swarm(sys.argv[1], Path(sys.argv[2]))(A)
    start = exchange.last_seq(A) + 1
    for seq in range(start, start + 100000):
        exchange.publish(A, seq, b"%d " % seq * 2000)
        print(seq, flush=True)
"""


def test_kill_9_of_a_publisher_loses_nothing_that_publish_returned_for(swarm):
    """Killed wherever it happens to be, three times: what it said is there, whole, and the next one goes on."""
    for _ in range(3):
        paths = [os.path.dirname(__file__), *sys.path]
        script = [sys.executable, "-c", textwrap.dedent(PUBLISHER), swarm.kind, str(swarm.home), *paths]
        child = subprocess.Popen(script, stdout=subprocess.PIPE, text=True)
        assert child.stdout
        said = [int(child.stdout.readline()) for _ in range(30)]
        child.send_signal(signal.SIGKILL)
        said += [int(line) for line in child.stdout.read().split()]
        child.wait()
        again = swarm(A)
        found = {one.seq: one.body for one in again.draw(0, 100000)}
        assert set(said) <= found.keys()
        assert all(body == b"%d " % seq * 2000 for seq, body in found.items())
        again.close()
