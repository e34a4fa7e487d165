"""Checks of the gain itself: against the noise of an evaluation, and against the training reward."""

import math
import statistics
from collections.abc import Sequence

from coterie.checks.base import Evidence, Finding, Record
from coterie.stats.power import t_critical

NOISE = 0.05
"""A standard deviation of repeated evaluations of one model above this is a fault: it is as large as the smallest effect that
recipes ask about by default (`min_effect`)."""

RISE = 0.05
"""A training reward that rose by less is not held against the score: it is below the smallest effect asked about by default."""

ERRORS = 2.0
"""How many standard errors make a rise or a gap: about the 95 % of a two-sided interval."""

FEWEST_STEPS = 20
"""With fewer, a quarter of the steps is less than five, and its standard error is hardly known."""


def noise_floor(evidence: Evidence) -> Finding:
    """The gain is held against the 95 % prediction interval for one more evaluation of the untrained model: mean ± t(n - 1) sd
    sqrt(1 + 1/n) of its n repeated evaluations."""
    before, score = evidence.before or {}, evidence.record.get("score")
    scores = [one for one in before.get("repeats") or () if one is not None]
    if len(scores) < 2:
        return "unknown", "the untrained model was not scored repeatedly; evaluate.repeats = 3 measures the noise of an evaluation"
    sd, mean, n = statistics.stdev(scores), statistics.fmean(scores), len(scores)
    said = f"{n} evaluations of the untrained model give {mean:.3f} with sd {sd:.3f}"
    if sd > NOISE:
        return "fault", f"{said}, more than {NOISE:g}, so a single score says little; raise evaluate.episodes or tasks.held_out"
    if score is None:
        return "unknown", f"{said}, and the run has no score to hold against it"
    floor = t_critical(n - 1, 0.05) * sd * math.sqrt(1 + 1 / n)
    said = f"{said}; the trained score {score:.3f} is {score - mean:+.3f} from it, where ±{floor:.3f} would be noise"
    return ("ok" if abs(score - mean) > floor else "note"), said


def reward_and_score(evidence: Evidence) -> Finding:
    """A training reward that rose while the held-out score did not: learned by heart, or learned to please the grader.

    The rise is from the first quarter of the steps to the last, the gain is paired by held-out task; each has a standard error.
    """
    rewards = [step["reward"] for step in evidence.metrics if step.get("reward") is not None]
    if not rewards and evidence.record.get("curve"):  # a committed record, without its metrics
        rewards = [reward for _, reward in evidence.record["curve"] if reward is not None]
    if len(rewards) < FEWEST_STEPS:
        return "unknown", f"{len(rewards)} steps with a reward are too few to see it rise; it takes {FEWEST_STEPS}"
    gains = _gains(evidence.before or {}, evidence.record)
    if len(gains) < 2:
        return "unknown", "no held-out task was scored both before and after training; set evaluate.before = true"
    quarter = len(rewards) // 4
    first, last = rewards[:quarter], rewards[-quarter:]
    rise, gain = statistics.fmean(last) - statistics.fmean(first), statistics.fmean(gains)
    rise_error, gain_error = math.hypot(_error(first), _error(last)), _error(gains)
    said = f"the training reward went {rise:+.3f} (±{rise_error:.3f} s.e.), the held-out score {gain:+.3f} (±{gain_error:.3f} s.e.)"
    if rise < RISE or rise <= ERRORS * rise_error or gain > ERRORS * gain_error:
        return "ok", said
    if rise - gain > ERRORS * math.hypot(rise_error, gain_error):
        return (
            "fault",
            f"{said}: it does not carry over; read episodes.jsonl for how reward is won, or use more train tasks",
        )
    return "note", f"{said}: too few held-out episodes to tell whether what was learned carries over"


def _gains(before: Record, after: Record) -> list[float]:
    """By held-out task, its mean reward after training less that before."""
    old, new = (_means(record.get("per_task") or {}) for record in (before, after))
    return [new[id] - old[id] for id in new if id in old]


def _means(per_task: Record) -> dict[str, float]:
    graded = {id: [reward for reward in rewards if reward is not None] for id, rewards in per_task.items()}
    return {id: statistics.fmean(rewards) for id, rewards in graded.items() if rewards}


def _error(values: Sequence[float]) -> float:
    """The standard error of the mean of two values or more."""
    return statistics.stdev(values) / math.sqrt(len(values))
