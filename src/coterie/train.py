"""The loop: tasks of the step, episodes, credit, rows, one optimiser step; log and checkpoint."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.assemble import Stage
from coterie.credit.base import Advantages
from coterie.draws.base import Draw
from coterie.evaluate import episode_record
from coterie.hall import Plan
from coterie.learn import checkpoint
from coterie.learn.learner import Learner
from coterie.learn.rows import rows_from_group
from coterie.measures import measure
from coterie.partners import add_snapshot, keep_snapshots, snapshot_tensors
from coterie.play import answer_probes, play
from coterie.records import append_lines, keep_until
from coterie.runs import RunFolder
from coterie.seeding import stream
from coterie.types import POLICY, Episode, Group, Message, Task


def tasks_of_step(tasks: Sequence[Task], seed: int, step: int, count: int) -> list[Task]:
    """The `count` tasks of a step, as a function of the step alone."""
    return tasks_at(tasks, seed, step * count, count)


def tasks_at(tasks: Sequence[Task], seed: int, first: int, count: int) -> list[Task]:
    """`count` tasks from place `first` of a walk through one shuffle of all tasks after another."""
    chosen = []
    for position in range(first, first + count):
        epoch, place = divmod(position, len(tasks))
        chosen.append(tasks[_order(seed, epoch, len(tasks))[place]])
    return chosen


@functools.lru_cache(maxsize=4)
def _order(seed: int, epoch: int, count: int) -> list[int]:
    return stream(seed, "task-order", epoch).permutation(count).tolist()


@dataclass(slots=True)
class Drawn:
    """The episodes of a step: for each task its pool, in the order in which tasks came in."""

    tasks: list[Task]
    pools: list[list[Episode]]
    rounds: int = 0

    @property
    def rewards(self) -> list[list[float | None]]:
        return [[e.reward for e in pool] for pool in self.pools]

    @property
    def casts(self) -> list[list[int]]:
        """The number of each episode's cast among those that its task was played by."""
        numbered = []
        for pool in self.pools:
            seen: list[Mapping[str, str]] = []
            for episode in pool:
                if episode.cast not in seen:
                    seen.append(episode.cast)
            numbered.append([seen.index(episode.cast) for episode in pool])
        return numbered

    def groups(self, draw: Draw) -> list[Group]:
        """What the draw keeps of each task, with the whole pool beside it; tasks of which it keeps nothing are dropped."""
        groups = []
        for task, pool in zip(self.tasks, self.pools, strict=True):
            kept = draw.keep([e.reward for e in pool])
            if kept:
                groups.append(Group(task, tuple(pool[i] for i in kept), tuple(pool)))
        return groups


def draw_episodes(stage: Stage, tasks: Sequence[Task], step: int) -> Drawn:
    """Ask the draw for rounds of episodes until it has enough of each task. Fresh tasks come from a shuffle of their own."""
    seats = stage.hall.protocol.seats
    drawn = Drawn(list(tasks), [[] for _ in tasks])
    while any(wanted := stage.draw.more(drawn.rewards, drawn.rounds, drawn.casts)):
        missing = len(wanted) - len(drawn.tasks)
        drawn.tasks += fresh_tasks(stage.tasks.train, drawn.tasks, stage.config.seed, step, missing)
        drawn.pools += [[] for _ in range(len(drawn.tasks) - len(drawn.pools))]
        plans, owners = [], []
        for owner, (task, pool, count) in enumerate(zip(drawn.tasks, drawn.pools, wanted, strict=False)):
            for index in range(len(pool), len(pool) + count):
                noise = ("train", step, owner)
                plans.append(Plan(task, index, stage.cast.players(seats, index, noise), noise))
                owners.append(owner)
        if not plans:  # it asks for fresh tasks only, and there are none left
            break
        for owner, episode in zip(owners, play(plans, stage.hall), strict=True):
            drawn.pools[owner].append(episode)
        drawn.rounds += 1
    return drawn


def fresh_tasks(tasks: Sequence[Task], taken: Sequence[Task], seed: int, step: int, count: int) -> list[Task]:
    """`count` further tasks for a step, none of them among `taken`; fewer when there are no more."""
    if count <= 0:
        return []
    used = {task.id for task in taken}
    order = stream(seed, "fresh-tasks", step, len(taken)).permutation(len(tasks)).tolist()
    return [tasks[i] for i in order if tasks[i].id not in used][:count]


def train(stage: Stage, folder: RunFolder) -> Learner:
    """Train from the latest checkpoint, or from the start, to the last step. Returns the learner (whose model is the policy).

    A step counts as done when its checkpoint, or a later one, is on disk; what a killed run had logged beyond its last checkpoint
    is dropped and played again, to the same bits.
    """
    config = stage.config.train
    learner = Learner(stage.model, config, seed=stage.config.seed)
    found = checkpoint.latest(folder.checkpoints)
    done = 0
    if found:
        extra = checkpoint.load(found, learner)
        done = extra["step"]
        if "cast" in extra:
            stage.cast.restore(extra["cast"])
        for player, tensors in checkpoint.load_frozen(found).items():
            add_snapshot(stage.model, player, tensors)
    for file in (folder.metrics_file, folder.episodes_file):
        keep_until(file, done)
    stage.engine.refresh(done)
    for step in range(done, config.steps):
        metrics, samples = train_step(stage, learner, step)
        append_lines(folder.episodes_file, samples)
        append_lines(folder.metrics_file, [metrics])
        if (step + 1) % config.checkpoint_every == 0 or step + 1 == config.steps:
            extra = {"step": step + 1, "cast": stage.cast.state()}
            frozen = snapshot_tensors(stage.model, stage.cast.snapshots)
            checkpoint.save(folder.checkpoints, step + 1, learner, extra, config.keep_checkpoints, frozen)
    return learner


def train_step(stage: Stage, learner: Learner, step: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One step: its metrics (step counted from 1; everything that depends on the clock is under "time") and sampled episodes."""
    config = stage.config.train
    start = time.perf_counter()
    tasks = tasks_of_step(stage.tasks.train, stage.config.seed, step, config.tasks_per_step)
    drawn = draw_episodes(stage, tasks, step)
    groups = drawn.groups(stage.draw)
    probes = [stage.credit.probes(group) for group in groups]
    replays = answer_probes(groups, probes, stage.hall, [("train", step, i) for i in range(len(groups))])
    played = time.perf_counter()
    credits = [stage.credit.advantages(*of_group) for of_group in zip(groups, replays, strict=True)]
    rows = [row for group, advantages in zip(groups, credits, strict=True) for row in rows_from_group(group, advantages)]
    learned = learner.step(rows)
    before = stage.cast.snapshots
    stage.cast.observe([episode for pool in drawn.pools for episode in pool])
    keep_snapshots(stage.model, stage.cast.snapshots, before)
    stage.engine.refresh(step + 1)
    ended = time.perf_counter()
    answers = [(group, *item) for group, of_group in zip(groups, replays, strict=True) for item in of_group.items()]
    replayed = [(group.episodes[probe.episode], again) for group, probe, again in answers]
    tokens = sum(len(m.ids) for pool in drawn.pools for e in pool for m in e.messages)
    extra = sum(len(m.ids) for before, again in replayed for m in again.messages if sampled_anew(m, before))
    metrics = {
        "step": step + 1,
        **play_metrics(stage, drawn, groups, credits),
        **learned,
        "sampled_tokens": tokens + extra,
        **({"replays": len(replayed), "replayed_tokens": extra} if replayed else {}),
        "time": {"play": played - start, "learn": ended - played, "tokens_per_second": (tokens + extra) / (played - start)},
    }
    episodes = [(e, c) for g, of_group in zip(groups, credits, strict=True) for e, c in zip(g.episodes, of_group, strict=True)]
    samples = [{"step": step + 1, **episode_record(e, c)} for e, c in episodes[: config.sample_episodes]]
    return metrics, samples


def sampled_anew(message: Message, before: Episode) -> bool:
    """Whether a replay sampled this message, and did not take it over from the episode `before`."""
    return message.turn >= len(before.messages) or message.ids is not before.messages[message.turn].ids


def own_reward(pool: Sequence[Episode]) -> float | None:
    """The mean reward of a task's episodes that the policy played by itself, or of all when there are none."""
    own = [e for e in pool if {*e.cast.values()} == {POLICY}] or pool
    rewards = [e.reward for e in own if e.reward is not None]
    return sum(rewards) / len(rewards) if rewards else None


def play_metrics(stage: Stage, drawn: Drawn, groups: Sequence[Group], credits: Sequence[Advantages]) -> dict[str, Any]:
    """Reward and talk of a step's episodes.

    `reward` is the mean over tasks of a task's mean reward, so that tasks which a draw plays more often weigh no more, and over the
    episodes that the policy plays by itself, where there are any, so that casts can be compared. `uniform_groups` counts the tasks
    that teach nothing: no message has an advantage.
    """
    pool = [episode for of_task in drawn.pools for episode in of_task]
    rewards = [mean for of_task in drawn.pools if (mean := own_reward(of_task)) is not None]
    kept = [e for g in groups for e in g.episodes]
    return {
        "reward": sum(rewards) / len(rewards) if rewards else None,
        "tasks": len(drawn.tasks),
        "rounds": drawn.rounds,
        "episodes": len(pool),
        "kept_episodes": len(kept),
        "grading_errors": sum(len(e.errors) for e in pool),
        "uniform_groups": len(drawn.tasks) - sum(any(a for of_episode in one for a in of_episode) for one in credits),
        "talk": measure(stage.hall.protocol, kept, {task.id: task for task in drawn.tasks}),
    }
