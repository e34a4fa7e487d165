"""The record of a run: what its training took, and what its held-out tasks came to."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from coterie.assemble import Stage
from coterie.casts.base import player_name
from coterie.casts.self_play import FixedCast, SelfPlay
from coterie.evaluate import cross_casts, episode_record, evaluate
from coterie.records import read_lines, write_json, write_text
from coterie.runs import RunFolder, machine, versions
from coterie.tasks.overlap import overlap
from coterie.types import Task


def record_of(stage: Stage, folder: RunFolder) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The whole record of a run that has been trained, and some held-out conversations."""
    start = time.perf_counter()
    result, conversations = score_run(stage)
    metrics = read_lines(folder.metrics_file)
    result["minutes"] = {
        "train": round(sum(m["time"]["play"] + m["time"]["learn"] for m in metrics) / 60, 3),
        "evaluate": round((time.perf_counter() - start) / 60, 3),
    }
    result["curve"] = [[m["step"], m["reward"]] for m in metrics]
    result["sampled_tokens"] = sum(m["sampled_tokens"] for m in metrics)
    result["cost"] = cost_of(metrics)
    return result, conversations


def finish(folder: RunFolder, result: Mapping[str, Any], conversations: Sequence[Mapping[str, Any]]) -> None:
    """Write the record; with it the run is finished."""
    write_text(folder.path / "evaluation.jsonl", "".join(json.dumps(c, ensure_ascii=False) + "\n" for c in conversations))
    folder.set_state(status="finished")
    write_json(folder.result_file, result)


def cost_of(metrics: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """What training took, over all steps: tasks and episodes drawn, episodes kept, rounds, tokens sampled and, where there were
    any, replays. Arms with another draw or credit are to be compared at their cost."""
    keys = ("tasks", "episodes", "kept_episodes", "rounds", "sampled_tokens", "replays")
    return {key: sum(m.get(key, 0) for m in metrics) for key in keys if any(key in m for m in metrics)}


def score_run(stage: Stage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The held-out part of a run's record (its own score, per task, cross-play, other protocols), and some conversations.

    An untrained run also has `repeats`: its score, and that of further evaluations of the same model under other noise.
    """
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
    repeats = {}
    if not config.train.steps:
        others = [evaluate(hall, held_out, SelfPlay(), episodes, repeat).score for repeat in range(1, config.evaluate.repeats)]
        repeats = {"repeats": [of.score, *others]}
    record = {
        "recipe": config.recipe,
        "profile": config.profile,
        "arm": config.arm,
        "seed": config.seed,
        "conditions": config.conditions(),
        "model": Path(config.model.path).name,
        **of.record(),
        "cross_play": cross,
        **({"also": also} if also else {}),
        "sampling": {"train": config.sampling.model_dump(), "evaluate": config.evaluation_sampling.model_dump()},
        "steps": config.train.steps,
        "train_tasks": len(stage.tasks.train),
        "skipped_tasks": stage.tasks.skipped,
        "overlap": overlap(stage.tasks),
        **repeats,
        "per_task": {id: list(rewards) for id, rewards in of.per_task.items()},
        "versions": versions(),
        "machine": machine(),
    }
    tasks = {task.id: task for task in held_out}
    sample = of.episodes[: config.evaluate.sample_episodes]
    return record, [{**episode_record(e), **given(tasks[e.task_id])} for e in sample]


def given(task: Task) -> dict[str, Any]:
    """What the seats of a conversation were given to read, so that it can be understood without the task set."""
    return {"ask": task.ask, "question": task.question, "facts": {seat: list(facts) for seat, facts in task.private.items()}}
