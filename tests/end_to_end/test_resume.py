"""Stopping and going on equals never stopping."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from coterie import train as training
from coterie.learn import checkpoint
from coterie.records import read_lines
from coterie.types import CoterieError
from coterie.worker import play_run


def without_clock(records):
    return [{key: value for key, value in record.items() if key != "time"} for record in records]


def outcome(folder):
    """All that a run has produced but for times: final weights and optimiser (as bytes), metrics, conversations, scores."""
    last = checkpoint.latest(folder.checkpoints)
    tensors = {name: tensor.numpy().tobytes() for name, tensor in load_file(last / "state.safetensors").items()}
    result = json.loads(folder.result_file.read_text())
    kept = {key: result[key] for key in ("score", "per_task", "measures", "curve")}
    return tensors, without_clock(read_lines(folder.metrics_file)), read_lines(folder.episodes_file), kept


def start(plan):
    (job,) = [job for job in plan.jobs if job.seed is not None]
    job.folder.create(job.config)
    return job.folder


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("stop_after", [1, 3])
def test_stop_and_resume_is_bit_identical(small_plan, tmp_path, monkeypatch, stop_after):
    whole = start(small_plan(tmp_path / "whole", "train.checkpoint_every=2"))
    play_run(whole)
    stopped = start(small_plan(tmp_path / "stopped", "train.checkpoint_every=2"))
    append = training.append_lines

    def interrupt(path, records):
        append(path, records)
        if path.name == "metrics.jsonl" and records[0]["step"] == stop_after:
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(training, "append_lines", interrupt)
        with pytest.raises(Interrupted):
            play_run(stopped)
    assert not stopped.finished
    play_run(stopped)
    assert outcome(stopped) == outcome(whole)
    assert any(metrics["live_rows"] for metrics in read_lines(whole.metrics_file)), (
        "no step learned anything, so nothing was tested"
    )


def test_an_unfinished_run_is_not_touched_without_resume(small_plan, tmp_path):
    plan = small_plan(tmp_path)
    folder = start(plan)
    folder.set_state(status="training")
    (job,) = [job for job in plan.jobs if job.seed is not None]
    with pytest.raises(CoterieError, match=r"holds an unfinished run .* go on with --resume"):
        folder.check(job.config, resume=False)
    folder.check(job.config, resume=True)


def test_two_processes_do_not_play_one_run(small_plan, tmp_path):
    folder = start(small_plan(tmp_path))
    with folder.locked(), pytest.raises(CoterieError, match="is being played by another process"):
        play_run(folder)


def test_a_torn_last_line_is_dropped(small_plan, tmp_path):
    folder = start(small_plan(tmp_path, steps=2))
    folder.metrics_file.write_text('{"step": 1, "rew')
    play_run(folder)
    assert [m["step"] for m in read_lines(folder.metrics_file)] == [1, 2]


@pytest.mark.slow
def test_twenty_kills_lose_no_finished_step(small_plan, tmp_path):
    """kill -9 at random moments, from loading to evaluating; every resume goes on from at least the last checkpoint, and what comes
    out in the end is what an undisturbed run gives."""
    steps = 40
    options = ("train.checkpoint_every=1", "tasks.held_out=40")
    whole = start(small_plan(tmp_path / "whole", *options, steps=steps))
    play_run(whole)
    folder = start(small_plan(tmp_path / "killed", *options, steps=steps))
    rng = random.Random(0)
    environment = {**os.environ, "COTERIE_THREADS": "1"}
    kills = 0
    while not folder.finished:
        before = checkpoint.latest(folder.checkpoints)
        done = int(before.name.removeprefix("step-")) if before else 0
        process = subprocess.Popen(
            [sys.executable, "-m", "coterie.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        process.stdin.write(f"{folder.path}\n")
        process.stdin.flush()
        if kills < 20:
            wait_for_step(folder.checkpoints, done)
            time.sleep(rng.uniform(0, 0.6))
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            after = checkpoint.latest(folder.checkpoints)
            assert after is None or int(after.name.removeprefix("step-")) >= done
        else:
            assert json.loads(process.stdout.readline())["error"] is None
            process.stdin.close()
            process.wait()
    assert kills == 20
    assert outcome(folder) == outcome(whole)


def wait_for_step(checkpoints: Path, done: int) -> None:
    """Until a step later than `done` is finished, so that twenty kills fall into the run and not into its loading."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        found = checkpoint.latest(checkpoints)
        if found and int(found.name.removeprefix("step-")) > done:
            return
        time.sleep(0.02)
    pytest.fail("no step was finished within a minute")
