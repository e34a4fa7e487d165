"""Plays one run from its folder, start to finish. `python -m coterie.worker` serves a launcher: folders in, outcomes out."""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.kinds import load_entry_points
from coterie.records import read_lines, write_json, write_text
from coterie.runs import RunFolder, machine, versions
from coterie.types import CoterieError


def play_run(folder: RunFolder) -> None:
    """Train the run (from its last checkpoint where there is one), score it on the held-out tasks and write `result.json`.

    A run whose `train.steps` is 0 scores the untrained model. A finished run is left as it is.
    """
    if folder.finished:
        return
    from coterie.assemble import assemble
    from coterie.train import train

    config = folder.config()
    with folder.locked():
        be_quiet()
        folder.set_state(status="loading", versions=versions(), machine=machine(), pid=os.getpid())
        stage = assemble(config)
        folder.set_state(status="training")
        train(stage, folder)
        folder.set_state(status="evaluating")
        start = time.perf_counter()
        result, conversations = score_run(stage)
        metrics = read_lines(folder.metrics_file)
        train_seconds = sum(m["time"]["play"] + m["time"]["learn"] for m in metrics)
        result["minutes"] = {"train": round(train_seconds / 60, 3), "evaluate": round((time.perf_counter() - start) / 60, 3)}
        result["curve"] = [[m["step"], m["reward"]] for m in metrics]
        result["sampled_tokens"] = sum(m["sampled_tokens"] for m in metrics)
        result["cost"] = cost_of(metrics)
        write_text(folder.path / "evaluation.jsonl", "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in conversations))
        folder.set_state(status="finished")
        write_json(folder.result_file, result)


def cost_of(metrics: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What training took, over all steps: tasks and episodes drawn, episodes kept, rounds, tokens sampled and, where there were
    any, replays. Arms with another draw or credit are to be compared at their cost."""
    keys = ("tasks", "episodes", "kept_episodes", "rounds", "sampled_tokens", "replays")
    return {key: sum(m.get(key, 0) for m in metrics) for key in keys if any(key in m for m in metrics)}


def score_run(stage: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The held-out part of a run's record (its own score, per task, cross-play, other protocols), and some conversations."""
    from coterie.casts.base import player_name
    from coterie.casts.self_play import FixedCast, SelfPlay
    from coterie.evaluate import cross_casts, episode_record, evaluate

    config, hall, held_out = stage.config, stage.evaluation_hall, stage.tasks.held_out
    episodes = config.evaluate.episodes
    of = evaluate(hall, held_out, SelfPlay(), episodes)
    cross = {}
    if config.train.steps and config.evaluate.cross_play:
        partners = [player_name(partner) for partner in config.evaluate.partners]
        for name, by_seat in cross_casts(hall.protocol.seats, partners).items():
            cross[name] = evaluate(hall, held_out, FixedCast(by_seat), episodes).record()
    also = {
        name: evaluate(replace(hall, protocol=other.protocol), other.held_out, SelfPlay(), episodes).record()
        for name, other in stage.also.items()
    }
    record = {
        "recipe": config.recipe,
        "profile": config.profile,
        "arm": config.arm,
        "seed": config.seed,
        "conditions": config.conditions(),
        "model": config.model.path if config.model.path == "pocket" else Path(config.model.path).name,
        **of.record(),
        "cross_play": cross,
        **({"also": also} if also else {}),
        "sampling": {"train": config.sampling.model_dump(), "evaluate": config.evaluation_sampling.model_dump()},
        "steps": config.train.steps,
        "train_tasks": len(stage.tasks.train),
        "skipped_tasks": stage.tasks.skipped,
        "per_task": {id: list(rewards) for id, rewards in of.per_task.items()},
        "versions": versions(),
        "machine": machine(),
    }
    return record, [episode_record(e) for e in of.episodes[: config.evaluate.sample_episodes]]


def be_quiet() -> None:
    """Keep the progress bars and notices of transformers off the screen and out of logs."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def _end_with(launcher: int) -> None:
    """End this process when its launcher is gone, however that ended; a run loses nothing by being killed."""
    while os.getppid() == launcher:
        time.sleep(0.5)
    os._exit(1)


def serve() -> None:
    """Read run folders from standard input, one a line, play each, and answer with one JSON line each: ok, or the error.

    The answers have standard output to themselves: whatever else a library prints there goes to standard error.
    """
    import gc
    import warnings

    import torch

    warnings.simplefilter("ignore")  # of the libraries; what coterie has to say goes into the run's files
    threads = os.environ.get("COTERIE_THREADS")
    if threads:
        torch.set_num_threads(int(threads))
    load_entry_points()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    for line in sys.stdin:
        folder = RunFolder(Path(line.rstrip("\n")))
        outcome: dict[str, Any] = {"folder": str(folder.path), "error": None, "kind": None}
        try:
            play_run(folder)
        except CoterieError as error:
            outcome.update(error=str(error), kind="user")
        except Exception as error:
            log = folder.path / "error.txt"
            write_text(log, traceback.format_exc())
            outcome.update(error=f"{type(error).__name__}: {error} (all of it is in {log})", kind="crash")
        print(json.dumps(outcome), file=answers, flush=True)
        gc.collect()  # model and engine refer to each other; on a GPU the next run needs their memory
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


if __name__ == "__main__":
    serve()
