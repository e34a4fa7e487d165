"""Held-out scores: of the trained copies together, of each with the untrained base as its partner, and the measures of talk."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.casts.base import Cast
from coterie.hall import Hall, Plan
from coterie.measures import measure
from coterie.play import play
from coterie.types import BASE, POLICY, Episode, Message, Player, Seat, Task


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`score` is the mean over tasks of a task's mean team reward; tasks none of whose episodes could be graded are left out and
    counted in `ungraded`."""

    score: float | None
    per_task: Mapping[str, tuple[float | None, ...]]
    measures: Mapping[str, Any]
    errors: int
    ungraded: int
    tokens: int
    seconds: float
    episodes: tuple[Episode, ...]

    def record(self) -> dict[str, Any]:
        return {
            "score": self.score,
            "held_out": len(self.per_task),
            "episodes": len(self.episodes),
            "measures": dict(self.measures),
            "grading_errors": self.errors,
            "ungraded_tasks": self.ungraded,
            "tokens": self.tokens,
            "seconds": round(self.seconds, 2),
        }


def evaluate(hall: Hall, tasks: Sequence[Task], cast: Cast, episodes: int, repeat: int = 0) -> Evaluation:
    """Play `episodes` of each task. The sampling noise is named by the hall's seed and the task, so that two arms of one seed
    meet the same noise. Another `repeat` has other noise: a second look at the same players."""
    start = time.perf_counter()
    seats = hall.protocol.seats
    noise = ("evaluate", "repeat", repeat) if repeat else ("evaluate",)
    plans = [Plan(task, i, cast.players(seats, i, ("evaluate", task.id)), noise) for task in tasks for i in range(episodes)]
    played = play(plans, hall)
    rewards: dict[str, list[float | None]] = {task.id: [] for task in tasks}
    for episode in played:
        rewards[episode.task_id].append(episode.reward)
    graded = [[r for r in of_task if r is not None] for of_task in rewards.values()]
    means = [sum(of_task) / len(of_task) for of_task in graded if of_task]
    return Evaluation(
        score=sum(means) / len(means) if means else None,
        per_task={id: tuple(of_task) for id, of_task in rewards.items()},
        measures=measure(hall.protocol, played, {task.id: task for task in tasks}),
        errors=sum(len(e.errors) for e in played),
        ungraded=sum(not of_task for of_task in graded),
        tokens=sum(len(m.ids) for e in played for m in e.messages),
        seconds=time.perf_counter() - start,
        episodes=tuple(played),
    )


MOST_ROLES = 4
"""The trained copy is tried in at most so many roles, the first ones, with each partner: an evaluation costs the same each time."""


def role(seat: Seat) -> str:
    """The part that a seat plays: its name without a number at the end."""
    return re.sub(r"[\s_-]*\d+$", "", seat) or seat


def cross_casts(seats: tuple[Seat, ...], partners: Sequence[Player] = (BASE,)) -> dict[str, dict[Seat, Player]]:
    """Cross-play: for each role and partner, the trained policy in that role and the partner in every other, by a readable name
    such as "A=policy,B=base" or "writer=base,reader=policy". Seats that differ by a number only have one role; where all do, they
    are alike, and the policy takes the first among partners. A single seat has nobody to play with.
    """
    roles = list(dict.fromkeys(role(seat) for seat in seats))
    if len(roles) > 1:
        parts = {name: tuple(seat for seat in seats if role(seat) == name) for name in roles}
    elif len(seats) > 1:
        parts = {seats[0]: seats[:1], "others": seats[1:]}
        roles = [seats[0]]
    else:
        return {}
    casts = {}
    for partner in partners:
        for trained in roles[:MOST_ROLES]:
            by_part = {name: POLICY if name == trained else partner for name in parts}
            name = ",".join(f"{part}={player}" for part, player in by_part.items())
            casts[name] = {seat: by_part[part] for part, of_part in parts.items() for seat in of_part}
    return casts


def episode_record(episode: Episode, credits: Sequence[float | None] | None = None) -> dict[str, Any]:
    """A conversation for people and reports: texts, not token ids."""

    def line(index: int, message: Message) -> dict[str, Any]:
        record = {
            "turn": message.turn,
            "seat": message.seat,
            "player": message.player,
            "final": message.final,
            "text": message.text,
            "stop": message.stop,
            "tokens": len(message.ids),
            "heard": list(message.heard),
            "score": message.score,
        }
        return record if credits is None else {**record, "advantage": credits[index]}

    return {
        "task_id": episode.task_id,
        "episode": episode.index,
        "cast": dict(episode.cast),
        "reward": episode.reward,
        "scores": dict(episode.scores),
        "errors": dict(episode.errors),
        "messages": [line(i, m) for i, m in enumerate(episode.messages)],
    }
