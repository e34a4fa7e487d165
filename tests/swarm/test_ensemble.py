"""A run that is a swarm: it repeats to the bit, also after being killed, and its record is what its nodes have written."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from coterie.again import evaluate_again
from coterie.config import RunConfig
from coterie.partners import find_partners
from coterie.records import read_json, read_lines
from coterie.runs import RunFolder
from coterie.swarm.ensemble import node_seed
from coterie.swarm.node import Node
from coterie.swarm.settings import check_run
from coterie.swarm.summary import average, joint, merge, worst
from coterie.types import CoterieError
from coterie.worker import play_run
from tests.swarm.members import config


def swarm_config(steps: int = 3, **swarm) -> RunConfig:
    about = {"nodes": 2, "external": {"kind": "fixed", "groups": 1}, "divide_by_std": True, **swarm}
    written = config(steps=steps, checkpoint_every=2).model_dump(mode="json", exclude_none=True)
    return RunConfig.model_validate({**written, "swarm": about, "tasks": {**written["tasks"], "train": 64, "held_out": 4}})


def made(path, about: RunConfig) -> RunFolder:
    folder = RunFolder(path)
    folder.create(about)
    return folder


def timeless(record):
    """Without what depends on the clock."""
    if isinstance(record, dict):
        return {k: timeless(v) for k, v in record.items() if k not in ("time", "minutes", "seconds", "machine")}
    return [timeless(one) for one in record] if isinstance(record, list) else record


def nodes(folder: RunFolder) -> list[RunFolder]:
    return [RunFolder(path) for path in sorted((folder.path / "nodes").iterdir())]


def outcome(folder: RunFolder):
    return timeless(read_json(folder.result_file)), [timeless(read_lines(node.metrics_file)) for node in nodes(folder)]


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    folder = made(tmp_path_factory.mktemp("swarm") / "run", swarm_config())
    play_run(folder)
    return folder


def test_a_run_repeats_to_the_bit(played, tmp_path):
    again = made(tmp_path / "again", swarm_config())
    play_run(again)
    assert outcome(again) == outcome(played)


def test_nodes_share_in_the_very_round_and_differ(played):
    first, second = (read_lines(node.metrics_file) for node in nodes(played))
    # each node shares the one group that it plays, and the other one's is there before the round is learned from
    assert [m["swarm"]["received"] for m in (*first, *second)] == [1] * 6
    assert [m["reward"] for m in first] != [m["reward"] for m in second]
    assert len({node.config().seed for node in nodes(played)} | {played.config().seed}) == 3
    assert [node.config().seed for node in nodes(played)] == [node_seed(1, 0), node_seed(1, 1)]


def test_the_record_is_made_of_its_nodes(played):
    record, parts = read_json(played.result_file), [read_json(node.result_file) for node in nodes(played)]
    lines = [m for node in nodes(played) for m in read_lines(node.metrics_file)]
    assert record["score"] == pytest.approx(sum(part["score"] for part in parts) / 2)
    assert record["episodes"] == sum(part["episodes"] for part in parts)
    assert record["seed"] == 1
    assert all(len(rewards) == 2 * 2 for rewards in record["per_task"].values())
    shared = record["swarm"]
    assert shared["cumulative_reward"] == pytest.approx(sum(m["reward"] for m in lines))
    assert shared["reward"] == pytest.approx(shared["cumulative_reward"] / 6)
    assert shared["bytes_sent"] == sum(m["swarm"]["bytes_sent"] for m in lines) > 0
    assert shared["foreign_groups"] == sum(m["swarm"]["external"] for m in lines)
    assert record["cost"]["episodes"] == sum(m["episodes"] for m in lines)
    assert [line["step"] for line in read_lines(played.metrics_file)] == [1, 2, 3]
    assert set(record["specialties"]) == {"sums", "differences"}
    assert record["overlap"]["questions"] == 0
    assert "repeats" not in record


def test_the_untrained_model_is_scored_once_for_each_kind_of_node(tmp_path):
    folder = made(tmp_path / "before", swarm_config(steps=0))
    play_run(folder)
    record = read_json(folder.result_file)
    assert record["steps"] == 0
    assert record["episodes"] == 4 * 2  # held-out tasks, episodes of each
    assert (len(record["repeats"]), record["repeats"][0]) == (3, record["score"])
    assert not (folder.path / "nodes").exists()


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_as_if_it_had_not_been(tmp_path):
    about = swarm_config(steps=6)
    whole = made(tmp_path / "whole", about)
    play_run(whole)
    folder = made(tmp_path / "killed", about)
    kills = 0
    for wait in (0.0, 0.3, 0.9, 1.4, 2.0, 0.6):  # seconds after the first round of this process is under way
        command = [sys.executable, "-m", "coterie.worker"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin
        process.stdin.write(f"{folder.path}\n")
        process.stdin.flush()
        state = folder.path / "run.json"
        while process.poll() is None and not (state.exists() and json.loads(state.read_text())["status"] == "training"):
            time.sleep(0.02)
        time.sleep(wait)
        if not folder.finished:
            os.kill(process.pid, signal.SIGKILL)
            kills += 1
        process.stdin.close()
        process.wait()
    play_run(folder)
    assert kills >= 2
    assert outcome(folder) == outcome(whole)
    assert [line["step"] for line in read_lines(folder.metrics_file)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_nodes_as_processes_end_with_a_record_of_the_same_form(tmp_path, played):
    folder = made(tmp_path / "apart", swarm_config(lockstep=False))
    play_run(folder)
    record = read_json(folder.result_file)
    assert record.keys() == read_json(played.result_file).keys()
    assert [len(read_lines(node.metrics_file)) for node in nodes(folder)] == [3, 3]
    assert record["swarm"]["errors"] == 0
    assert (folder.path / "exchange.sqlite").exists()


def test_means_of_what_nodes_have_measured():
    assert average([{"a": 1, "b": {"c": [1, 2]}}, {"a": 2, "b": {"c": [3, 6]}}]) == {"a": 1.5, "b": {"c": [2, 4]}}
    assert average([{"a": None}, {"a": 2.0}]) == {"a": 2.0}
    assert average([None, None]) is None
    assert average(["x", "y"]) == "x"
    assert worst([{"a": 0, "b": 0.5, "c": None}, {"a": 2, "b": 0.25, "c": None}]) == {"a": 2, "b": 0.5, "c": None}
    line = {"step": 4, "reward": 0.25, "training_reward": 0.5, "sampled_tokens": 10, "time": {"play": 1.0, "learn": 3.0}}
    both = joint([line, {**line, "reward": 0.75, "training_reward": None, "sampled_tokens": 30}])
    assert (both["reward"], both["training_reward"], both["sampled_tokens"]) == (0.5, 0.5, 40)
    assert both["time"] == {"play": 2.0, "learn": 6.0, "tokens_per_second": 20.0}


def test_nodes_that_an_older_version_finished_are_put_together_all_the_same(played):
    parts = [read_json(node.result_file) for node in nodes(played)]
    old = {key: value for key, value in parts[0].items() if key != "overlap"}
    merged = merge(swarm_config(), [old, parts[1]])
    assert merged["score"] == pytest.approx(sum(part["score"] for part in parts) / 2)
    assert "overlap" not in merged


def test_one_of_its_copies_is_scored_again_and_is_a_partner_and_not_the_swarm(played):
    with pytest.raises(CoterieError, match=r"is a swarm of several copies; give one of them, for example .*nodes/node-1"):
        evaluate_again(played.path, [], "again")
    partnered = swarm_config().model_copy(update={"swarm": None})
    with pytest.raises(CoterieError, match="is a swarm of several copies"):
        find_partners(partnered, [str(played.path)])
    node = nodes(played)[0]
    result, _ = evaluate_again(node.path, [], "again")
    assert result["score"] == read_json(node.result_file)["score"]
    assert [*find_partners(partnered, [str(node.path)]).adapters.values()] == [node.checkpoints / "step-000003" / "adapter"]


def test_models_that_play_unevenly_are_weighed_before_training_as_after(tmp_path):
    """Three nodes of two models: the first model is two thirds of the mean."""
    about = swarm_config(steps=0, nodes=3, models=("pocket", "pocket-small"))
    folder = made(tmp_path / "before", about)
    play_run(folder)
    record = read_json(folder.result_file)
    by = {model: of["score"] for model, of in record["swarm"]["by_model"].items()}
    assert record["score"] == pytest.approx((2 * by["pocket"] + by["pocket-small"]) / 3)


def test_a_model_that_would_play_in_no_node_is_refused():
    about = swarm_config(models=("pocket-small",))
    with pytest.raises(CoterieError, match=r"model.path = pocket plays in no node"):
        check_run(about)


def test_a_run_that_goes_on_logs_each_round_once(tmp_path):
    """Stopped with one node ahead of the other and of both checkpoints: what is played again is not logged again."""
    folder = made(tmp_path / "run", swarm_config(steps=4))
    real, calls = Node.learn, []

    def stop(node, played):
        calls.append(node)
        if len(calls) == 6:  # the second node in the third round
            raise KeyboardInterrupt
        return real(node, played)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Node, "learn", stop)
        with pytest.raises(KeyboardInterrupt):
            play_run(folder)
    assert [line["step"] for line in read_lines(folder.metrics_file)] == [1, 2]
    play_run(folder)
    assert [line["step"] for line in read_lines(folder.metrics_file)] == [1, 2, 3, 4]
    whole = made(tmp_path / "whole", swarm_config(steps=4))
    play_run(whole)
    assert outcome(folder) == outcome(whole)
