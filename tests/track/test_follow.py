"""Trackers get every step once, and nothing that they do reaches a run."""

import json
import sys
import threading
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coterie.records import append_lines, write_json
from coterie.runs import RunFolder
from coterie.track import follow, trackers
from coterie.track.base import Series, numbers_in
from coterie.track.follow import SENT, Follower, followed, series_of
from coterie.types import CoterieError
from tests.swarm.members import config


class Kept:
    """A tracker that remembers, and fails where it is told to."""

    def __init__(self, fail: str = ""):
        self.fail, self.logged, self.opened, self.closed = fail, [], [], 0

    def __call__(self, series: Series) -> "Kept":
        self._try("open")
        self.opened.append(series)
        return self

    def log(self, step, numbers):
        self._try("log")
        self.logged.append((step, dict(numbers)))

    def close(self):
        self._try("close")
        self.closed += 1

    def _try(self, what):
        if self.fail == what:
            raise RuntimeError(f"{what} has failed")


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "arm-seed1")
    made.create(config())
    return made


def lines(*steps):
    return [{"step": step, "reward": step / 10, "talk": {"shared": 0.5, "cut": [0.1]}, "note": "text"} for step in steps]


def finish(folder):
    cross = {"A=policy,B=base": {"score": 0.25, "measures": {}}}
    write_json(folder.result_file, {"score": 0.75, "measures": {"shared": 0.5}, "cross_play": cross, "per_task": {"a": [1.0]}})


def test_each_step_is_sent_once_also_by_the_next_follower(folder):
    said, first, second = [], Kept(), Kept()
    one = Follower([folder], {"kept": first}, said.append)
    one.look()
    assert not first.opened, "nothing to send, nothing opened"
    append_lines(folder.metrics_file, lines(1, 2))
    one.look()
    one.look()
    append_lines(folder.metrics_file, lines(3))
    one.look()
    assert [step for step, _ in first.logged] == [1, 2, 3]
    assert first.logged[0][1] == {"reward": 0.1, "talk.shared": 0.5}
    append_lines(folder.metrics_file, lines(4))
    finish(folder)
    two = Follower([folder], {"kept": second}, said.append)
    two.look()
    two.look()
    assert [step for step, _ in second.logged] == [4, 5], "the score stands at a step of its own"
    assert second.closed == 1
    score = {"held_out.score": 0.75, "held_out.measures.shared": 0.5, "held_out.cross_play.A=policy,B=base": 0.25}
    assert second.logged[1][1] == score
    assert not said
    assert first.opened[0].id == second.opened[0].id
    assert (first.opened[0].project, first.opened[0].group, first.opened[0].name) == ("test", "test", "arm-seed1")


@pytest.mark.parametrize("fail", ["open", "log", "close"])
def test_a_tracker_that_fails_is_told_once_and_the_others_go_on(folder, fail, capsys):
    good, bad = Kept(), Kept(fail)
    append_lines(folder.metrics_file, lines(1))
    with followed([folder], {"bad": bad, "good": good}, Console(soft_wrap=True)):
        append_lines(folder.metrics_file, lines(2))
    assert [step for step, _ in good.logged] == [1, 2]
    assert good.closed == 1
    told = capsys.readouterr().out
    assert told.count("bad failed and is left out") == 1
    assert f"RuntimeError: {fail} has failed" in told


def test_a_tracker_that_hangs_is_left(folder, monkeypatch):
    gate, said = threading.Event(), []
    append_lines(folder.metrics_file, lines(1))
    follower = Follower([folder], {"slow": lambda series: gate.wait(20) and Kept()}, said.append)
    follower.start()
    follower.stop(0.2)
    assert "did not end" in said[0]
    gate.set()


def test_what_was_torn_or_edited_is_no_obstacle(folder):
    tracker = Kept()
    append_lines(folder.metrics_file, lines(1))
    with open(folder.metrics_file, "a") as file:
        file.write('{"step": 2, "rew')
    (folder.path / SENT).write_text("{")
    Follower([folder], {"kept": tracker}, pytest.fail).look()
    assert [step for step, _ in tracker.logged] == [1]
    assert json.loads((folder.path / SENT).read_text()) == {"kept": {"step": 1, "score": False}}


def test_the_same_run_elsewhere_is_another_series(folder, tmp_path):
    other = RunFolder(tmp_path / "elsewhere" / "arm-seed1")
    other.create(config())
    assert series_of(folder).id != series_of(other).id
    assert series_of(folder) == series_of(folder)


records = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.text(min_size=1, max_size=3), inner, max_size=3) | st.lists(inner, max_size=2),
)


@given(st.dictionaries(st.text(min_size=1, max_size=3), records, max_size=4))
def test_only_finite_numbers_are_sent(record):
    for value in numbers_in(record).values():
        assert type(value) is float
        assert abs(value) < float("inf")


def test_a_package_that_is_missing_and_a_name_that_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(CoterieError, match=r"--track wandb: the package wandb is not installed; run `pip install wandb`"):
        trackers.opener("wandb")
    with pytest.raises(CoterieError, match=r"--track mlflow: there is no such tracker; give one of tensorboard, trackio, wandb"):
        trackers.opener("mlflow")


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_runs_of_packages_are_opened_to_go_on(folder, monkeypatch, name):
    """The calls that wandb 0.31 and trackio 0.43 document, on a stand-in."""
    calls = []
    run = types.SimpleNamespace(log=lambda numbers, step: calls.append((step, numbers)), finish=lambda: calls.append("finish"))
    package = types.SimpleNamespace(init=lambda **given: calls.append(given) or run, Settings=lambda **given: given)
    monkeypatch.setitem(sys.modules, name, package)
    append_lines(folder.metrics_file, lines(1))
    with followed([folder], {name: trackers.opener(name)}, Console()):
        pass
    given, logged, end = calls
    assert (given["project"], given["group"], given["resume"]) == ("test", "test", "allow")
    assert given["config"]["train"]["steps"] == 4
    assert logged == (1, {"reward": 0.1, "talk.shared": 0.5})
    assert end == "finish"


def test_tensorboard_reads_back_what_was_sent(folder):
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    append_lines(folder.metrics_file, lines(1, 2, 3))
    with followed([folder], {"tensorboard": trackers.opener("tensorboard")}, Console()):
        pass
    events = EventAccumulator(str(folder.path / "tensorboard")).Reload()
    assert [(e.step, pytest.approx(e.value)) for e in events.Scalars("reward")] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert set(events.Tags()["scalars"]) == {"reward", "talk/shared"}


def test_nothing_is_followed_without_trackers(monkeypatch):
    monkeypatch.setattr(follow, "Follower", lambda *_: pytest.fail("opened"))
    with followed([], {}, Console()):
        pass
