"""The loop: tasks of the step, episodes, credit, rows, one optimiser step; log and checkpoint."""

import functools
import time
from collections.abc import Sequence
from typing import Any

from coterie.assemble import Stage
from coterie.evaluate import episode_record
from coterie.learn import checkpoint
from coterie.learn.learner import Learner
from coterie.learn.rows import rows_from_group
from coterie.measures import talk_measures
from coterie.play import Plan, play
from coterie.records import append_lines, keep_until
from coterie.runs import RunFolder
from coterie.seeding import stream
from coterie.types import Episode, Group, Task


def tasks_of_step(tasks: Sequence[Task], seed: int, step: int, count: int) -> list[Task]:
    """The `count` tasks of a step: a walk through one shuffle of all tasks after another, as a function of the step alone."""
    chosen = []
    for position in range(step * count, (step + 1) * count):
        epoch, place = divmod(position, len(tasks))
        chosen.append(tasks[_order(seed, epoch, len(tasks))[place]])
    return chosen


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> list[int]:
    return stream(seed, "task-order", epoch).permutation(count).tolist()


def draw_groups(stage: Stage, tasks: Sequence[Task], step: int) -> list[Group]:
    """Ask the draw for rounds of episodes until it has enough of each task, then keep what it says."""
    seats = stage.hall.protocol.seats
    pools: list[list[Episode]] = [[] for _ in tasks]
    rounds = 0
    while True:
        wanted = stage.draw.more({str(i): [e.reward for e in pool] for i, pool in enumerate(pools)}, rounds)
        if not wanted:
            break
        plans, owners = [], []
        for key, count in wanted.items():
            owner = int(key)
            for index in range(len(pools[owner]), len(pools[owner]) + count):
                plans.append(Plan(tasks[owner], index, stage.cast.players(seats, index), ("train", step, owner)))
                owners.append(owner)
        for owner, episode in zip(owners, play(plans, stage.hall), strict=True):
            pools[owner].append(episode)
        rounds += 1
    groups = []
    for task, pool in zip(tasks, pools, strict=True):
        rewards = tuple(e.reward for e in pool)
        groups.append(Group(task, tuple(pool[i] for i in stage.draw.keep(rewards)), rewards))
    return groups


def train(stage: Stage, folder: RunFolder) -> Learner:
    """Train from the latest checkpoint, or from the start, to the last step. Returns the learner (whose model is the policy).

    A step counts as done when its checkpoint, or a later one, is on disk; what a killed run had logged beyond its last checkpoint
    is dropped and played again, to the same bits.
    """
    config = stage.config.train
    learner = Learner(stage.model, config, seed=stage.config.seed)
    found = checkpoint.latest(folder.checkpoints)
    done = checkpoint.load(found, learner)["step"] if found else 0
    for file in (folder.metrics_file, folder.episodes_file):
        keep_until(file, done)
    stage.engine.refresh(done)
    for step in range(done, config.steps):
        metrics, samples = train_step(stage, learner, step)
        append_lines(folder.episodes_file, samples)
        append_lines(folder.metrics_file, [metrics])
        if (step + 1) % config.checkpoint_every == 0 or step + 1 == config.steps:
            checkpoint.save(folder.checkpoints, step + 1, learner, {"step": step + 1}, config.keep_checkpoints)
    return learner


def train_step(stage: Stage, learner: Learner, step: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One step: its metrics (step counted from 1; everything that depends on the clock is under "time") and sampled episodes."""
    config = stage.config.train
    start = time.perf_counter()
    tasks = tasks_of_step(stage.tasks.train, stage.config.seed, step, config.tasks_per_step)
    groups = draw_groups(stage, tasks, step)
    played = time.perf_counter()
    credits = [stage.credit(group) for group in groups]
    rows = [row for group, advantages in zip(groups, credits, strict=True) for row in rows_from_group(group, advantages)]
    learned = learner.step(rows)
    stage.engine.refresh(step + 1)
    ended = time.perf_counter()
    tokens = sum(len(m.ids) for g in groups for e in g.episodes for m in e.messages)
    metrics = {
        "step": step + 1,
        **play_metrics(groups),
        **learned,
        "sampled_tokens": tokens,
        "time": {"play": played - start, "learn": ended - played, "tokens_per_second": tokens / (played - start)},
    }
    episodes = [(e, c) for g, of_group in zip(groups, credits, strict=True) for e, c in zip(g.episodes, of_group, strict=True)]
    samples = [{"step": step + 1, **episode_record(e, c)} for e, c in episodes[: config.sample_episodes]]
    return metrics, samples


def play_metrics(groups: Sequence[Group]) -> dict[str, Any]:
    """Reward and talk of a step's episodes. `uniform_groups` counts the groups that teach nothing: all rewards equal."""
    rewards = [r for g in groups for r in g.pool_rewards if r is not None]
    episodes = [e for g in groups for e in g.episodes]
    return {
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "episodes": sum(len(g.pool_rewards) for g in groups),
        "grading_errors": sum(len(e.errors) for e in episodes),
        "uniform_groups": sum(len(set(g.pool_rewards) - {None}) <= 1 for g in groups),
        "talk": talk_measures(episodes, {g.task.id: g.task for g in groups}),
    }
