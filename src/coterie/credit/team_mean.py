"""Every message is paid the team reward minus its group's mean."""

import math

from coterie.types import Group


def team_mean(group: Group) -> list[list[float]]:
    """One advantage per message of each kept episode: the episode's team reward minus the mean reward of the pool.

    This is REINFORCE with a group baseline: GRPO (2402.03300, eq. 3) without the division by the standard deviation, which weighs
    tasks by their difficulty (Dr. GRPO, 2503.20783). Cooperation is in the sharing: a message is paid for what the whole team
    reached, whoever wrote the final answer.

    The baseline is a mean over *episodes*, so an episode with many messages counts once, and over every episode *drawn* for the
    task (`pool_rewards`), so that a draw which keeps some of them does not bias it (Reinforce-Ada, 2510.04996).

    An episode whose grader failed (reward None) is left out of the baseline and its messages get exactly 0.0. When all rewards
    are equal there is nothing to learn from, and every advantage is exactly 0.0: the comparison is exact, because the rounding
    residue of a mean (about 1e-17) would otherwise pass for a signal.

    Raises ValueError for a reward that is not finite, and for an episode with a reward whose pool has none.
    """
    pool = [reward for reward in group.pool_rewards if reward is not None]
    kept = [episode.reward for episode in group.episodes]
    graded = [reward for reward in kept if reward is not None]
    if not all(math.isfinite(reward) for reward in pool + graded):
        raise ValueError(f"task {group.task.id}: a reward is not finite; a grader that fails must give None, not {pool + graded}")
    if graded and not pool:
        raise ValueError(f"task {group.task.id}: an episode has a reward, but pool_rewards has none to take the mean of")
    if len(set(pool + graded)) <= 1:
        return [[0.0] * len(episode.messages) for episode in group.episodes]
    baseline = math.fsum(pool) / len(pool)
    advantages = [0.0 if reward is None else reward - baseline for reward in kept]
    return [[advantage] * len(episode.messages) for advantage, episode in zip(advantages, group.episodes, strict=True)]
