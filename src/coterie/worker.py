"""Plays one run from its folder, start to finish. `python -m coterie.worker` serves a launcher: folders in, outcomes out."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from coterie.runs import RunFolder, machine, versions
from coterie.types import CoterieError


def play_run(folder: RunFolder, on_step: Callable[[int], None] = lambda step: None) -> None:
    """Train the run (from its last checkpoint where there is one), score it on the held-out tasks and write `result.json`.

    A run whose `train.steps` is 0 scores the untrained model. A finished run is left as it is.
    """
    if folder.finished:
        return
    from coterie.assemble import assemble
    from coterie.records import read_lines
    from coterie.train import train

    config = folder.config()
    with folder.locked():
        folder.set_state(status="loading", versions=versions(), machine=machine(), pid=os.getpid())
        stage = assemble(config)
        folder.set_state(status="training")
        train(stage, folder, on_step)
        folder.set_state(status="evaluating")
        start = time.perf_counter()
        result = score_run(stage, folder)
        metrics = read_lines(folder.metrics_file)
        train_seconds = sum(m["time"]["play"] + m["time"]["learn"] for m in metrics)
        result["minutes"] = {"train": round(train_seconds / 60, 3), "evaluate": round((time.perf_counter() - start) / 60, 3)}
        result["curve"] = [[m["step"], m["reward"]] for m in metrics]
        result["sampled_tokens"] = sum(m["sampled_tokens"] for m in metrics)
        folder.set_state(status="finished")
        finish(folder, result)


def finish(folder: RunFolder, result: dict[str, Any]) -> None:
    from coterie.records import write_json

    write_json(folder.result_file, result)


def score_run(stage: Any, folder: RunFolder) -> dict[str, Any]:
    """The held-out part of a run's record: its own score, per task, and cross-play; conversations go to evaluation.jsonl."""
    from coterie.casts.self_play import FixedCast, SelfPlay
    from coterie.evaluate import cross_casts, episode_record, evaluate
    from coterie.records import write_text

    config = stage.config
    trained = config.train.steps > 0
    of = evaluate(stage.evaluation_hall, stage.tasks.held_out, SelfPlay(), config.evaluate.episodes)
    kept = of.episodes[: config.evaluate.sample_episodes]
    write_text(folder.path / "evaluation.jsonl", "".join(json.dumps(episode_record(e), ensure_ascii=False) + "\n" for e in kept))
    cross = {}
    if trained and config.evaluate.cross_play:
        for name, by_seat in cross_casts(stage.hall.protocol.seats).items():
            cross[name] = evaluate(stage.evaluation_hall, stage.tasks.held_out, FixedCast(by_seat), config.evaluate.episodes).record()
    return {
        "recipe": config.recipe,
        "profile": config.profile,
        "arm": config.arm,
        "seed": config.seed,
        "model": config.model.path if config.model.path == "pocket" else Path(config.model.path).name,
        **of.record(),
        "cross_play": cross,
        "sampling": {"train": config.sampling.model_dump(), "evaluate": config.evaluation_sampling.model_dump()},
        "steps": config.train.steps,
        "train_tasks": len(stage.tasks.train),
        "skipped_tasks": stage.tasks.skipped,
        "per_task": {id: list(rewards) for id, rewards in of.per_task.items()},
        "versions": versions(),
        "machine": machine(),
    }


def serve() -> None:
    """Read run folders from standard input, one a line, play each, and answer with one JSON line each: ok, or the error."""
    import torch

    threads = os.environ.get("COTERIE_THREADS")
    if threads:
        torch.set_num_threads(int(threads))
    parent = os.getppid()

    def stop_with_launcher(step: int) -> None:
        if os.getppid() != parent:  # the launcher was killed: stop at a step's end, where nothing is lost
            sys.exit(1)

    for line in sys.stdin:
        folder = RunFolder(Path(line.rstrip("\n")))
        outcome: dict[str, Any] = {"folder": str(folder.path), "error": None, "kind": None}
        try:
            play_run(folder, stop_with_launcher)
        except CoterieError as error:
            outcome.update(error=str(error), kind="user")
        except Exception as error:
            import traceback

            traceback.print_exc()
            outcome.update(error=f"{type(error).__name__}: {error}", kind="crash")
        print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    serve()
