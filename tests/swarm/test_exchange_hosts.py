"""Hosts with addresses of their own: network namespaces on one machine, joined by a bridge in a namespace. Linux, root and `ip`.

Two hubs and two clients that do not listen. Nothing leaves the namespaces: none has a way out.
"""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import time

import pytest

A, B, C, D = "a" * 64, "b" * 64, "c" * 64, "d" * 64
pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed: pip install 'coterie[swarm]'")
pytestmark = pytest.mark.slow

NODE = """
    import json, sys
    from coterie.swarm.exchange.zenoh import ZenohExchange
    exchange = ZenohExchange("test", *json.loads(sys.argv[1]), **json.loads(sys.argv[2]), repair_seconds=2)
    for line in sys.stdin:
        match json.loads(line):
            case ["publish", node, count]:
                for _ in range(count):
                    exchange.publish(node, exchange.last_seq(node) + 1, bytes(20_000))
                answer = True
            case ["seqs", node]:
                answer = sorted(one.seq for one in exchange.draw(0, 10_000) if one.node == node)
            case ["status"]:
                answer = exchange.status()
        print(json.dumps(answer), flush=True)
    exchange.close()
"""


def ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(done.stderr.strip())


class Hosts:
    """Namespaces h0 to h3 with addresses 10.231.77.1 to .4, each on a cable to the bridge in namespace `sw`."""

    def __init__(self):
        self.prefix, self.made, self.children = f"coterie-{os.getpid()}", [], []

    def name(self, host):
        return f"{self.prefix}-{host}"

    def build(self):
        for host in ("sw", *(f"h{i}" for i in range(4))):
            ip("netns", "add", self.name(host))
            self.made.append(self.name(host))
            ip("-n", self.name(host), "link", "set", "lo", "up")
        ip("-n", self.name("sw"), "link", "add", "name", "br0", "type", "bridge")
        ip("-n", self.name("sw"), "link", "set", "br0", "up")
        for i in range(4):
            home = self.name(f"h{i}")
            ip("-n", self.name("sw"), "link", "add", "name", f"p{i}", "type", "veth", "peer", "name", "eth", "netns", home)
            ip("-n", self.name("sw"), "link", "set", f"p{i}", "master", "br0", "up")
            ip("-n", home, "addr", "add", f"10.231.77.{i + 1}/24", "dev", "eth")
            ip("-n", home, "link", "set", "eth", "up")

    def cable(self, i, state):
        ip("-n", self.name("sw"), "link", "set", f"p{i}", state)

    def start(self, i, node, store, **links):
        script = ["ip", "netns", "exec", self.name(f"h{i}"), sys.executable, "-c", textwrap.dedent(NODE)]
        child = subprocess.Popen(
            [*script, json.dumps([node, str(store)]), json.dumps(links)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.children.append(child)

        def ask(*words):
            assert child.stdin
            assert child.stdout
            child.stdin.write(json.dumps(words) + "\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        return ask, child

    def remove(self):
        for child in self.children:
            child.kill()
            child.communicate()
        for name in self.made:
            ip("netns", "del", name)


@pytest.fixture
def hosts():
    if not shutil.which("ip"):
        pytest.skip("no `ip`: install iproute2")
    hosts = Hosts()
    try:
        try:
            hosts.build()
        except OSError as error:
            if not any(
                words in str(error) for words in ("not permitted", "Permission denied", "Unknown device type", "not supported")
            ):
                raise  # a mistake in this file must not look like a machine that cannot
            pytest.skip(f"network namespaces cannot be made here: {error}")
        yield hosts
    finally:
        hosts.remove()


def until(look, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := look()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def test_clients_behind_two_hubs_lose_nothing_to_late_hubs_a_pulled_cable_or_a_dead_hub(hosts, tmp_path):
    hubs = ["tcp/10.231.77.1:7447", "tcp/10.231.77.2:7447"]
    c, _ = hosts.start(2, C, tmp_path / "c.sqlite", hubs=hubs)
    c("publish", C, 5)
    assert until(lambda: "none of tcp/10.231.77.1:7447" in c("status"))

    a, first = hosts.start(0, A, tmp_path / "a.sqlite", listen=hubs[:1], hubs=hubs[1:])
    b, _ = hosts.start(1, B, tmp_path / "b.sqlite", listen=hubs[1:], hubs=hubs[:1])
    d, _ = hosts.start(3, D, tmp_path / "d.sqlite", hubs=hubs[::-1])
    a("publish", A, 3)
    assert until(lambda: all(ask("seqs", C) == list(range(5)) and ask("seqs", A) == [0, 1, 2] for ask in (a, b, c, d)))

    hosts.cable(2, "down")
    c("publish", C, 5)  # into a link that nobody knows to be dead
    assert until(lambda: "alone" in c("status") or "connected to 0" in c("status")), c("status")
    c("publish", C, 5)
    d("publish", D, 4)
    assert c("seqs", D) == []
    hosts.cable(2, "up")
    assert until(lambda: all(ask("seqs", C) == list(range(15)) and ask("seqs", D) == [0, 1, 2, 3] for ask in (a, b, c, d)))

    first.kill()
    c("publish", C, 5)
    d("publish", D, 4)
    assert until(lambda: all(ask("seqs", C) == list(range(20)) and ask("seqs", D) == list(range(8)) for ask in (b, c, d)))
