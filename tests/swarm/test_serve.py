"""One node from its folder, and the commands around it, in this process. What is expected comes from the files that nodes write."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from coterie.config.exchange import FolderExchangeConfig, MembershipConfig, SqliteExchangeConfig, ZenohExchangeConfig
from coterie.config.swarm import SwarmConfig
from coterie.records import read_json, read_lines
from coterie.swarm.envelope import MAX_BYTES, encode
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.identity import load_identity
from coterie.swarm.look import look
from coterie.swarm.place import NodeFolder, SwarmFolder
from coterie.swarm.serve import accepts, open_exchange, play_node, settings_of
from coterie.swarm.wanted import further
from coterie.types import CoterieError
from tests.commands import cli  # noqa: F401 (a fixture)
from tests.swarm.nodes import ANN, BOB, EVE, envelope
from tests.swarm.small import write_recipe


@pytest.fixture
def start(cli, tmp_path, monkeypatch):  # noqa: F811
    """`coterie swarm start lab` of the small recipe, in an empty folder; gives exit code and what was said."""
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)

    def call(*words):
        return cli("swarm", "start", "lab", "--recipe", "small.toml", "--arm", "shared", *words)

    return call


@pytest.fixture
def made(start):
    """A swarm whose node-1 has played a round of two and was stopped: its folder."""
    place = SwarmFolder(Path("lab"))
    assert start("--rounds", "1")[0] == 0
    return place


def newest(folder: NodeFolder) -> str:
    """The name of the latest checkpoint."""
    return sorted(path.name for path in folder.checkpoints.glob("step-*"))[-1]


def steps(folder: NodeFolder) -> list[int]:
    return [m["step"] for m in read_lines(folder.metrics_file)]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_start_plays_a_node_to_its_end_and_the_same_call_again_changes_nothing(start, cli):  # noqa: F811
    code, said = start()
    place = SwarmFolder(Path("lab"))
    (node,) = place.nodes()
    assert code == 0, said
    assert steps(node) == [1, 2, 3]
    assert load_identity(node.key_file).node in said
    assert "coterie swarm join lab" in said
    result = read_json(node.result_file)
    assert (result["steps"], result["held_out"], len(result["per_task"])) == (3, 4, 4)
    before = files(Path("lab"))
    code, said = start()
    assert code == 0
    assert f"score {result['score']:.3f}" in said
    assert files(Path("lab")) == before
    code, said = cli("swarm", "start", "lab", "--recipe", "small.toml")
    assert (code, "other settings" in said, files(Path("lab"))) == (2, True, before)
    code, said = cli("eval", node.path)
    assert (code, f"score {result['score']:.3f}" in said, "step 3" in said) == (0, True, True)
    code, said = cli("chat", "small.toml", "--run", node.path)
    assert code == 0, said


def test_a_new_node_has_its_own_key_and_seed_and_receives_the_history(start, cli):  # noqa: F811
    start()
    code, said = cli("swarm", "join", "lab", "--set", "swarm.only_useful=false")
    first, second = SwarmFolder(Path("lab")).nodes()
    assert (code, "node-2 of swarm small" in said) == (0, True)
    keys = [load_identity(node.key_file).node for node in (first, second)]
    assert [node.config().seed for node in (first, second)] == [int(key[:8], 16) for key in keys]
    assert keys[0] != keys[1]
    rounds = read_lines(second.metrics_file)
    assert rounds[0]["swarm"]["received"] == 3, "what node-1 sent before it ended"
    assert rounds[0]["swarm"]["external"] == 1
    written = [node.config().model_dump(exclude={"seed"}) for node in (first, second)]
    assert written[1].pop("swarm") == {**written[0].pop("swarm"), "only_useful": False}
    assert written[0] == written[1]
    with SqliteExchangeOpen(Path("lab/exchange.sqlite")) as exchange:
        assert {e.node for e in exchange.draw(0, 99)} == set(keys)


class SqliteExchangeOpen:
    def __init__(self, path):
        self.exchange = SqliteExchange(path)

    def __enter__(self):
        return self.exchange

    def __exit__(self, *_):
        self.exchange.close()


BAD = [
    (("start", "lab", "--recipe", "smal.toml"), r"no recipe is named smal\.toml"),
    (("start", "lab", "--recipe", "small.toml", "--arm", "sharde"), r"no arm sharde"),
    (("start", "lab", "--recipe", "small.toml", "--nodes", "0"), r"--nodes 0: give 1 or more"),
    (("start", "lab", "--recipe", "small.toml", "--nodes", "2", "--node", "x"), r"--node names one node"),
    (("start", "lab", "--recipe", "small.toml", "--node", "../x"), r"--node \.\./x: a name is"),
    (("start", "lab", "--recipe", "small.toml", "--rounds", "0"), r"--rounds 0: give 1 or more"),
    (("start", "lab", "--recipe", "small.toml", "--allow", "abc"), r"--allow abc: a key is 64"),
    (("start", "lab", "--recipe", "small.toml", "--hub", "here:1"), r"--hub here:1: write it as tcp/"),
    (("start", "lab", "--recipe", "small.toml", "--hub", "tcp/h:1", "--shared", "s"), r"two ways"),
    (("start", "lab", "--recipe", "small.toml", "--listen", "tcp/0.0.0.0:7447"), r"give the address at which others reach"),
    (
        ("start", "lab", "--recipe", "small.toml", "--hub", "tcp/h:1", "--set", "swarm.name=Big Lab"),
        r"swarm\.name = Big Lab: over a net",
    ),
    (("start", "lab", "--recipe", "small.toml", "--shared", "not/mounted"), r"there is no folder .*not; mount it"),
    (("start", "lab", "--recipe", "small.toml", "--set", "tasks.kind=pocket"), r"no tasks that others could make again"),
    (("start", "lab", "--recipe", "small.toml", "--arm", "shared", "--set", "train.tasks_per_step=1"), r"at least one own group"),
    (("start", "lab", "--recipe", "small.toml", "--zenoh", "z.toml"), r"--zenoh: give --listen or --hub too"),
    (("start", "full", "--recipe", "small.toml"), r"full is not empty and holds no swarm"),
    (("join", "lab"), r"lab holds no swarm .*coterie swarm start lab"),
    (("status", "lab"), r"lab holds no swarm"),
    (("leave", "lab"), r"lab holds no swarm"),
]


@pytest.mark.parametrize(("words", "told"), BAD, ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "")
def test_what_cannot_work_is_refused_in_a_sentence_and_nothing_is_written(cli, tmp_path, monkeypatch, words, told):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    write_recipe(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "theirs.txt").write_text("keep")
    before = files(tmp_path)
    code, said = cli("swarm", *words)
    assert (code, said.startswith("coterie: "), "Traceback" in said) == (2, True, False), said
    assert files(tmp_path) == before

    assert re.search(told, said), said


def test_wrong_use_of_a_swarm_that_is_there(made, cli):  # noqa: F811
    node = made.node("node-1")
    before = files(Path("lab"))
    for words, told in (
        (("join", "lab", "--node", "node-1", "--rounds", "9"), "keeps its settings; leave --rounds 9 out"),
        (("join", "lab", "--set", "swarm.name=other"), "but the swarm of this folder is small"),
        (("join", "lab", "--set", "swarm.nam=other"), "did you mean swarm.name"),
        (("leave", "lab", "--node", "node-7"), "has no node node-7; it has node-1"),
    ):
        code, said = cli("swarm", *words)
        assert (code, told in said) == (2, True), said
    assert files(Path("lab")) == before
    node.result_file.unlink()
    with node.held():
        code, said = cli("swarm", "join", "lab", "--node", "node-1")
    assert (code, "node-1 is running already" in said) == (2, True), said


def test_the_leave_file_and_sigterm_end_a_node_after_its_round(start, cli, monkeypatch):  # noqa: F811
    """Stopped twice and gone on with: every round once, the same key, and a checkpoint after the round that was being played."""
    place = SwarmFolder(Path("lab"))
    node = place.node("node-1")
    asks = {1: node.leave_file.touch, 2: lambda: os.kill(os.getpid(), signal.SIGTERM)}
    ends = []

    def play(swarm, folder, say):
        def listen(line):
            say(line)
            if line.startswith("round") and (ask := asks.pop(len(steps(folder)), None)):
                ask()

        ends.append(play_node(swarm, folder, listen))

    monkeypatch.setattr("coterie.swarm.serve.play_node", play)
    code, said = start()
    assert (code, ends, steps(node), newest(node)) == (0, ["left"], [1], "step-000001"), said
    assert read_json(node.state_file)["status"] == "left"
    key = load_identity(node.key_file).node
    code, said = cli("swarm", "join", "lab", "--node", "node-1")
    assert (ends, steps(node), newest(node)) == (["left", "stopped"], [1, 2], "step-000002")
    assert "going on after round 1" in said
    assert start()[0] == 0  # the same call goes on as well
    assert (ends[2], steps(node)) == ("finished", [1, 2, 3])
    assert load_identity(node.key_file).node == key
    assert [m["swarm"]["groups_sent"] for m in read_lines(node.metrics_file)] == [1, 1, 1]
    with SqliteExchangeOpen(Path("lab/exchange.sqlite")) as exchange:
        assert [e.seq for e in exchange.draw(0, 99)] == [0, 1, 2]


def test_leaving_when_nothing_runs_is_no_error(made, cli):  # noqa: F811
    code, said = cli("swarm", "leave", "lab")
    assert (code, "no node is running here" in said, "1 of 1 rounds" in said) == (0, True, True)
    assert not made.node("node-1").leave_file.exists(), "it would end the node's next life"


def test_status_says_what_the_files_say(made, cli):  # noqa: F811
    """Two true envelopes of one stranger, garbage in the name of another, and a node that is killed in its second round."""
    place, node = made, made.node("node-1")
    with SqliteExchangeOpen(Path("lab/exchange.sqlite")) as exchange:
        for seq in range(3):
            exchange.publish(EVE.node, seq, b"garbage")
        about = envelope(ANN, 0, swarm="elsewhere")
        exchange.publish(ANN.node, 0, encode(about, ANN))
    code, said = cli("swarm", "join", "lab", "--node", "late", "--rounds", "2")
    assert code == 0, said
    late = place.node("late")
    late.set_state(status="playing")  # as it stands in the file when a process is killed
    late.result_file.unlink()
    code, said = cli("swarm", "status", "lab", "--json")
    found = json.loads(said)
    rows = {one["name"]: one for one in found["nodes"]}
    metrics = read_lines(late.metrics_file)
    assert (rows["node-1"]["state"], rows["late"]["state"], rows["late"]["running"]) == ("finished", "killed", False)
    assert (rows["late"]["round"], rows["late"]["rounds"], rows["late"]["errors"]) == (2, 2, 0)
    assert rows["late"]["reward"] == pytest.approx(sum(m["reward"] for m in metrics) / 2)
    assert rows["late"]["bytes_sent"] == sum(m["swarm"]["bytes_sent"] for m in metrics)
    judged = {one["node"]: one for one in found["judged"] if one["by"] == "late"}
    assert judged[EVE.node]["dropped"] == {"schema": 3}
    assert judged[ANN.node]["dropped"] == {"swarm": 1}
    assert (
        judged[node.id]["admitted"] == metrics[0]["swarm"]["admitted"] == read_lines(node.metrics_file)[0]["swarm"]["groups_sent"]
    )
    assert late.id not in judged
    assert {peer["node"]: peer["envelopes"] for peer in found["peers"]} == {EVE.node: 3, ANN.node: 1, node.id: 1, late.id: 2}
    with late.held():
        assert [one["running"] for one in look(place)["nodes"]] == [True, False]
        assert look(place)["nodes"][0]["state"] == "playing"
    code, said = cli("swarm", "status", "lab")
    assert code == 0
    for shown in ("schema 3", "swarm 1", "killed", EVE.node[:8], f"{rows['late']['reward']:.3f}"):
        assert shown in said


def test_what_the_network_brings_is_taken_only_as_what_it_claims_to_be():
    true = encode(envelope(ANN, 3), ANN)
    accept = accepts("test", None)
    assert accept(ANN.node, 3, true)
    assert not accept(ANN.node, 4, true), "another number"
    assert not accept(BOB.node, 3, true), "another node"
    assert not accept(ANN.node, 3, true[:-1] + (b"0" if true[-1:] != b"0" else b"1")), "another signature"
    assert not accept(ANN.node, 3, true.replace(b"What is", b"What ix")), "another text"
    assert not accept(ANN.node, 3, b"garbage")
    assert not accept(ANN.node, 3, encode(envelope(ANN, 3, swarm="elsewhere"), ANN)), "another swarm"
    assert not accepts("test", frozenset({BOB.node}))(ANN.node, 3, true), "a closed swarm"
    assert accepts("test", frozenset({ANN.node}))(ANN.node, 3, true)


def test_other_hubs_and_keys_may_be_given_to_a_node_that_goes_on(start, cli, monkeypatch):  # noqa: F811
    """And only these; the shared folder gets what the node sends from then on."""
    node = SwarmFolder(Path("lab")).node("node-1")

    def once(swarm, folder, say):
        return play_node(swarm, folder, lambda line: node.leave_file.touch() if line.startswith("round") else None)

    with monkeypatch.context() as patch:
        patch.setattr("coterie.swarm.serve.play_node", once)
        start()
    before = node.config()
    assert (steps(node), settings_of(before, node.membership()).allowed) == ([1], None)
    code, said = cli("swarm", "join", "lab", "--node", "node-1", "--shared", "disk", "--allow", BOB.node)
    assert (code, steps(node)) == (0, [1, 2, 3]), said
    assert node.config() == before
    assert settings_of(before, node.membership()).allowed == (BOB.node,)
    assert [int(p.name[:19]) for p in sorted(Path("disk").glob(f"{node.id}/*.envelope"))] == [1, 2]


def test_every_exchange_takes_what_an_envelope_may_be_and_no_more(tmp_path):
    settings = SwarmConfig()
    for about in (SqliteExchangeConfig(path="x.sqlite"), FolderExchangeConfig(kind="folder", path=str(tmp_path / "shared"))):
        membership = MembershipConfig(name="s", exchange=about)
        exchange = open_exchange(membership, tmp_path, tmp_path / "own.sqlite", "a", settings)
        exchange.publish("a", 0, b"x" * MAX_BYTES)
        with pytest.raises(CoterieError, match="body of 262145 bytes"):
            exchange.publish("a", 1, b"x" * (MAX_BYTES + 1))
        exchange.close()


def test_a_second_node_of_a_machine_is_a_client_of_the_first():
    hub = ZenohExchangeConfig(kind="zenoh", listen=("tcp/192.0.2.1:7447",), hubs=("tcp/192.0.2.2:7447",), settings={"a": 1})
    client = ZenohExchangeConfig(kind="zenoh", listen=(), hubs=("tcp/192.0.2.1:7447", "tcp/192.0.2.2:7447"), settings={"a": 1})
    assert further(hub) == client
    assert further(client) == client
    assert further(SqliteExchangeConfig()) == SqliteExchangeConfig()
