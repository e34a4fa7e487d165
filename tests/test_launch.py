"""Workers that misbehave."""

import sys
import textwrap

import pytest

from coterie import running
from coterie.config import RunConfig
from coterie.launch import local
from coterie.runs import RunFolder
from tests.swarm.members import config

HEAD = """
import json, os, sys

def ANSWER(folder, error=None):
    print(json.dumps({"folder": folder, "error": error, "kind": "crash"}), flush=True)

"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Replace the worker by a script; `ANSWER(folder, error)` prints a proper answer."""

    def use(body: str):
        script = tmp_path / "worker.py"
        body = textwrap.indent(textwrap.dedent(body), "    ")
        script.write_text(f"{HEAD}for line in sys.stdin:\n    folder = line.rstrip()\n{body}")
        popen = local.subprocess.Popen
        monkeypatch.setattr(local.subprocess, "Popen", lambda command, **options: popen([sys.executable, str(script)], **options))

    return use


def play(tmp_path, count=3, workers=1):
    folders = [RunFolder(tmp_path / f"run{i}") for i in range(count)]
    return [(f.folder.name, f.error) for f in local.play_runs(folders, workers, 1, lambda: None)]


def test_noise_on_standard_output_is_no_answer(worker, tmp_path):
    """Breaks when any line is taken for the answer: the launcher hung, or dropped the runs that were left without a word."""
    worker("print('hello'); print(0.5); print('{}'); print('null')\nANSWER(folder)")
    assert play(tmp_path) == []


def test_a_worker_that_dies_fails_its_run_and_the_others_are_played(worker, tmp_path):
    worker("if folder.endswith('run1'): os.kill(os.getpid(), 9)\nANSWER(folder)")
    assert play(tmp_path) == [("run1", "its worker was killed by signal 9")]
    worker("if folder.endswith('run1'): os._exit(3)\nANSWER(folder)")
    assert play(tmp_path, workers=2) == [("run1", "its worker ended with exit code 3")]


def test_errors_are_reported(worker, tmp_path):
    worker("ANSWER(folder, 'no such thing' if folder.endswith('run2') else None)")
    assert play(tmp_path) == [("run2", "no such thing")]


def test_a_worker_that_cannot_be_started_fails_each_run(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise OSError("no more processes")

    monkeypatch.setattr(local.subprocess, "Popen", refuse)
    assert [error for _, error in play(tmp_path, count=2)] == ["OSError: no more processes"] * 2


@pytest.mark.parametrize(
    ("count", "visible", "each", "sets"),
    [
        (0, None, 1, []),
        (3, None, 1, ["0", "1", "2"]),
        (2, "5,7", 1, ["5", "7"]),
        (2, "GPU-a,GPU-b", 1, ["GPU-a", "GPU-b"]),
        (5, None, 2, ["0,1", "2,3"]),
        (1, None, 2, ["0"]),  # the engine itself says that one is not enough
    ],
)
def test_gpus_in_sets(count, visible, each, sets):
    assert local.gpu_sets(count, visible, each) == sets


def test_a_run_gets_as_many_gpus_as_it_can_use():
    alone = config()
    swarm = {"nodes": 3, "lockstep": False}
    apart, together = (
        RunConfig.model_validate({**alone.model_dump(mode="json", exclude_none=True), "swarm": {**swarm, "lockstep": lockstep}})
        for lockstep in (False, True)
    )
    assert [running.gpus_of(one) for one in (alone, apart, together)] == [1, 3, 1]


def test_each_worker_sees_one_gpu(worker, tmp_path):
    """Breaks when two workers are put on one GPU while another stands idle."""
    worker("""
        import pathlib, time
        pathlib.Path(folder + ".gpu").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
        time.sleep(0.3)
        ANSWER(folder)
    """)
    folders = [RunFolder(tmp_path / f"run{i}") for i in range(2)]
    assert local.play_runs(folders, 2, 1, lambda: None, ["3", "5"]) == []
    assert sorted(file.read_text() for file in tmp_path.glob("*.gpu")) == ["3", "5"]
