"""Where the spread of held-out scores comes from: training seeds, tasks, or sampling; and so what would narrow an interval.

Every seed of an arm answers the same held-out tasks, each in one or more episodes, so rewards form a table seeds x tasks x
episodes. The model is the two-way crossed random-effects one with replication:

    reward[s, t, e] = mean + seed[s] + task[t] + seed_task[s, t] + sampling[s, t, e]

`split` estimates the four variances by the method of moments (mean squares of the balanced analysis of variance set equal to their
expectations), which assumes no distribution. An estimate below zero is set to zero, as is usual. With one episode a task the last
two cannot be told apart and are given together.

The score of one seed then scatters between seeds with variance

    seed + seed_task / tasks + sampling / (tasks * episodes)

which is what an interval over n seeds divides by n. Tasks as such are not in it: all seeds have the same ones. Source: Searle,
Casella and McCulloch (1992), Variance Components, chapter 4; for evaluations, Miller (2024), arXiv:2411.00640.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from coterie.types import CoterieError

Rewards = Mapping[str, Sequence[float | None]]
"""Task id to the reward of each episode; None where the grader failed: `per_task` of a record."""


@dataclass(frozen=True, slots=True)
class Components:
    """Variances in squared score points of one reward, and the sizes of the table that they were estimated from. With one episode a
    task, `seed_task` holds both and `sampling` is None."""

    seeds: int
    tasks: int
    episodes: int
    seed: float
    task: float
    seed_task: float
    sampling: float | None

    def between_seeds(self, tasks: int | None = None, episodes: int | None = None) -> float:
        """The variance, between seeds, of a score over so many tasks and episodes a task; by default those that were played."""
        tasks, episodes = tasks or self.tasks, episodes or self.episodes
        return self.seed + self.seed_task / tasks + (self.sampling or 0.0) / (tasks * episodes)

    def shares(self) -> tuple[float, float, float | None]:
        """Shares of `between_seeds` that are the seed's own, that of tasks within a seed, and sampling's; zeros without any
        spread."""
        whole = self.between_seeds() or 1.0
        sampling = None if self.sampling is None else self.sampling / (self.tasks * self.episodes) / whole
        return self.seed / whole, self.seed_task / self.tasks / whole, sampling


def split(rewards_STE: np.ndarray) -> Components:
    """The components of a full table of rewards, seeds x tasks x episodes. Raises `CoterieError` below two seeds or two tasks."""
    seeds, tasks, episodes = rewards_STE.shape
    if seeds < 2 or tasks < 2:
        raise CoterieError(
            "A split of the variance needs at least 2 seeds that were graded on the same 2 tasks or more; "
            f"here are {seeds} and {tasks}."
        )
    cell_ST = rewards_STE.mean(axis=2)
    seed_S, task_T, mean = cell_ST.mean(axis=1), cell_ST.mean(axis=0), cell_ST.mean()
    rest_ST = cell_ST - seed_S[:, None] - task_T[None, :] + mean
    ms_seed = tasks * episodes * ((seed_S - mean) ** 2).sum() / (seeds - 1)
    ms_task = seeds * episodes * ((task_T - mean) ** 2).sum() / (tasks - 1)
    ms_both = episodes * (rest_ST**2).sum() / ((seeds - 1) * (tasks - 1))
    within = None if episodes < 2 else float(((rewards_STE - cell_ST[:, :, None]) ** 2).sum() / (seeds * tasks * (episodes - 1)))
    return Components(
        seeds,
        tasks,
        episodes,
        seed=max(0.0, float(ms_seed - ms_both) / (tasks * episodes)),
        task=max(0.0, float(ms_task - ms_both) / (seeds * episodes)),
        seed_task=max(0.0, (float(ms_both) - (within or 0.0)) / episodes),
        sampling=within,
    )


def table(by_seed: Mapping[int, Rewards]) -> tuple[np.ndarray, int]:
    """Rewards as an array seeds x tasks x episodes, over the tasks that every seed has in full; and how many tasks were left out
    because an episode of some seed could not be graded or is missing."""
    every = list(dict.fromkeys(task for rewards in by_seed.values() for task in rewards))
    episodes = max((len(of) for rewards in by_seed.values() for of in rewards.values()), default=0)
    full = [
        task
        for task in every
        if all(len(of := rewards.get(task, ())) == episodes and None not in of for rewards in by_seed.values())
    ]
    rows = [[rewards[task] for task in full] for _, rewards in sorted(by_seed.items())]
    return np.array(rows, dtype=float).reshape(len(by_seed), len(full), episodes), len(every) - len(full)


def advice(found: Components) -> str:
    """What would narrow an interval over seeds, in words. More seeds always do; more tasks or episodes only shrink their own
    part."""
    if found.between_seeds() == 0:
        return "The seeds agree exactly; there is no spread to split."
    own, tasks, sampling = found.shares()
    if own >= 0.5:
        return "Mostly the seed's own: only more seeds help."
    if sampling is None:
        return "Mostly tasks and sampling: more held-out tasks help too; several episodes a task would tell the two apart."
    if sampling >= tasks:
        return "Mostly sampling: more episodes a task, or more held-out tasks, help too."
    return "Mostly tasks that suit one seed and not another: more held-out tasks help too, more episodes do not."


def differences(baseline: Mapping[int, Rewards], arm: Mapping[int, Rewards]) -> dict[int, Rewards]:
    """The rewards of an arm less those of the baseline, episode by episode, for the seeds and tasks that both have: what the
    interval of a paired comparison is made of. An episode is paired with the one that met the same noise."""
    return {
        seed: {
            task: [None if a is None or b is None else a - b for b, a in zip(of_base, arm[seed][task], strict=False)]
            for task, of_base in baseline[seed].items()
            if task in arm[seed]
        }
        for seed in sorted(baseline.keys() & arm.keys())
    }
