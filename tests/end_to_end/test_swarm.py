"""Swarms as users run them: each node a process of its own, started and ended through the command line.

Time is waited for, never measured. What is expected is read from what nodes leave on disk."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from coterie.records import read_json, read_lines
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.place import NodeFolder, SwarmFolder
from tests.swarm.small import write_recipe

pytestmark = pytest.mark.slow  # a process imports its libraries for seconds

RECIPE = ("--recipe", "small.toml", "--arm", "shared")


def until(look, what, seconds=240.0):
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)
    return found


class Command(subprocess.Popen):
    """`coterie swarm WORDS`, and the file with what it says."""

    def __init__(self, words, said: Path):
        self.said = said
        with open(said, "wb") as file:
            super().__init__([sys.executable, "-m", "coterie", "swarm", *map(str, words)], stdout=file, stderr=subprocess.STDOUT)


@pytest.fixture
def swarm(tmp_path, monkeypatch):
    """Starts `coterie swarm WORDS` as a process; those that still run at the end are killed."""
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    running = []

    def begin(*words) -> Command:
        running.append(Command(words, tmp_path / f"said-{len(running)}.txt"))
        return running[-1]

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait()


def ended(process, seconds=300) -> str:
    """What a process said that ended well."""
    code = process.wait(seconds)
    said = process.said.read_text()
    assert code == 0, said
    return said


def node(name="node-1", folder="lab") -> NodeFolder:
    return SwarmFolder(Path(folder)).node(name)


def rounds(folder: NodeFolder) -> int:
    return len(read_lines(folder.metrics_file))


def has_played(folder: NodeFolder, count: int):
    until(lambda: rounds(folder) >= count, f"round {count} of {folder.path}")


def seqs(store: Path, of: str) -> list[int]:
    exchange = SqliteExchange(store)
    try:
        return [e.seq for e in exchange.draw(0, 100_000) if e.node == of]
    finally:
        exchange.close()


def test_start_join_status_leave(swarm):
    first = swarm("start", "lab", *RECIPE, "--rounds", 100_000)
    has_played(node(), 3)
    second = swarm("join", "lab")
    has_played(node("node-2"), 3)
    has_played(node(), rounds(node()) + 3)
    found = json.loads(ended(swarm("status", "lab", "--json")))
    assert [(one["name"], one["state"], one["running"]) for one in found["nodes"]] == [
        ("node-1", "playing", True),
        ("node-2", "playing", True),
    ]
    admitted = {(one["by"], one["name"]) for one in found["judged"] if one["admitted"]}
    assert admitted == {("node-1", "node-2"), ("node-2", "node-1")}
    code = swarm("join", "lab", "--node", "node-1").wait(60)
    assert code == 2
    ended(swarm("leave", "lab", "--node", "node-2"))
    assert second.wait(60) == 0
    assert first.poll() is None
    ended(swarm("leave", "lab"))
    assert first.wait(60) == 0
    for folder in (node(), node("node-2")):
        assert [m["step"] for m in read_lines(folder.metrics_file)] == list(range(1, rounds(folder) + 1))
        assert folder.state()["status"] == "left"
        assert (folder.checkpoints / f"step-{rounds(folder):06d}" / "state.json").is_file(), "left with a checkpoint"


def test_eight_nodes_for_two_hundred_rounds(swarm):
    said = ended(swarm("start", "lab", *RECIPE, "--nodes", 8, "--rounds", 200), seconds=1500)
    nodes = SwarmFolder(Path("lab")).nodes()
    assert len(nodes) == 8
    assert "8 of 8 nodes ended well" in said
    for one in nodes:
        metrics = read_lines(one.metrics_file)
        assert [m["step"] for m in metrics] == list(range(1, 201))
        assert read_json(one.result_file)["steps"] == 200
        assert sum(m["swarm"]["errors"] for m in metrics) == 0
        assert sum(m["swarm"]["external"] for m in metrics) > 0
        assert seqs(Path("lab/exchange.sqlite"), one.id) == sorted(range(sum(m["swarm"]["groups_sent"] for m in metrics)))


@pytest.mark.parametrize("victim", ["node-1", "node-2"])
def test_a_node_that_is_killed_goes_on_and_the_others_never_stopped(swarm, victim):
    """The first node and another one; killed with signal 9 in the middle of anything."""
    processes = {"node-1": swarm("start", "lab", *RECIPE, "--rounds", 100_000)}
    has_played(node(), 1)
    for name in ("node-2", "node-3"):
        processes[name] = swarm("join", "lab", "--node", name)
    for name in processes:
        has_played(node(name), 9)
    processes[victim].send_signal(signal.SIGKILL)
    processes[victim].wait()
    gone, others = node(victim), [node(name) for name in processes if name != victim]
    key, played = gone.id, rounds(gone)
    sent = seqs(Path("lab/exchange.sqlite"), key)
    for other in others:
        has_played(other, rounds(other) + 10)
    assert rounds(gone) == played
    rows = json.loads(ended(swarm("status", "lab", "--json")))["nodes"]
    assert {one["name"]: one["state"] for one in rows} == {**dict.fromkeys(processes, "playing"), victim: "killed"}
    saved = max(int(path.name[5:]) for path in gone.checkpoints.glob("step-*"))
    again = swarm("join", "lab", "--node", victim)
    has_played(gone, played + 5)
    ended(swarm("leave", "lab"))
    assert f"going on after round {saved}" in again.said.read_text()
    for process in (again, *(processes[other.name] for other in others)):
        assert process.wait(60) == 0
    assert gone.id == key
    assert [m["step"] for m in read_lines(gone.metrics_file)] == list(range(1, rounds(gone) + 1))
    found = json.loads(ended(swarm("status", "lab", "--json")))
    assert {one["node"] for one in found["peers"]} == {key, *(other.id for other in others)}
    faults = Counter(reason for one in found["judged"] for reason in one["dropped"] if one["node"] == key)
    assert not faults.keys() & {"replay", "signature", "schema", "mismatch"}, "what it sent twice would be dropped as a replay"
    heard = seqs(Path("lab/exchange.sqlite"), key)
    assert heard[: len(sent)] == sent
    assert len(heard) > len(sent) + 3, "what it published after it came back"


def test_what_is_published_while_the_hub_is_away_arrives_when_it_is_back(swarm):
    """Over a network: a hub and two clients on the loopback. The hub is killed, its clients play on, and it comes back."""
    pytest.importorskip("zenoh", reason="eclipse-zenoh is not installed: pip install 'coterie[swarm]'")
    hub_at = f"tcp/127.0.0.1:{20000 + os.getpid() % 10000}"
    many = ("--rounds", 100_000, "--set", "train.checkpoint_every=10")
    hub = swarm("start", "hub", *RECIPE, *many, "--listen", hub_at)
    clients = [swarm("join", name, *RECIPE, *many, "--hub", hub_at) for name in ("ann", "ben")]
    ann, ben, middle = (node(folder=name) for name in ("ann", "ben", "hub"))
    until(lambda: ben.store_file.exists() and ann.key_file.exists() and seqs(ben.store_file, ann.id), "ann's groups at ben's")
    until(lambda: middle.store_file.exists() and seqs(middle.store_file, ann.id), "ann's groups at the hub")
    hub.send_signal(signal.SIGKILL)
    hub.wait()
    there = len(seqs(middle.store_file, ann.id))
    first = rounds(ann)
    has_played(ann, first + 10)
    has_played(ben, rounds(ben) + 10)
    alone = seqs(ann.store_file, ann.id)
    assert len(seqs(middle.store_file, ann.id)) == there, "nobody can have brought it"
    assert len(alone) >= there + 10
    assert ann.status()["errors"] == 0
    again = swarm("join", "hub", "--node", "node-1")
    until(lambda: set(alone) <= set(seqs(middle.store_file, ann.id)), "what ann published meanwhile, at the hub")
    until(lambda: set(alone) <= set(seqs(ben.store_file, ann.id)), "and at ben's")
    for name in ("ann", "ben", "hub"):
        ended(swarm("leave", name))
    assert [process.wait(60) for process in (again, *clients)] == [0, 0, 0]
