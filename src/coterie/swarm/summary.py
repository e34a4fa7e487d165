"""What a swarm came to: the records and rounds of its nodes, put together. Pure functions over what nodes have written."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from coterie.config import RunConfig
from coterie.scoring import cost_of
from coterie.types import Task

Metrics = Mapping[str, Any]
Record = Mapping[str, Any]

_SUMMED = ("tasks", "episodes", "kept_episodes", "rounds", "grading_errors", "rows", "live_rows", "sampled_tokens")


def joint(round: Sequence[Metrics]) -> dict[str, Any]:
    """One round of all nodes as one line of metrics: rewards are means over nodes, counts and seconds are sums."""
    tokens = sum(m["sampled_tokens"] for m in round)
    seconds = {half: sum(m["time"][half] for m in round) for half in ("play", "learn")}
    return {
        "step": round[0]["step"],
        "reward": mean(m["reward"] for m in round),
        "training_reward": mean(m["training_reward"] for m in round),
        **{key: sum(m[key] for m in round) for key in _SUMMED if all(key in m for m in round)},
        "time": {**seconds, "tokens_per_second": tokens / seconds["play"] if seconds["play"] else 0.0},
    }


def merge(config: RunConfig, records: Sequence[Record], metrics: Sequence[Sequence[Metrics]] = ()) -> dict[str, Any]:
    """The record of the whole run. Scores and measures are means over nodes, each of which was scored on the same held-out tasks;
    counts, tokens and minutes are sums."""
    first = records[0]
    rounds = [joint(round) for round in zip(*metrics, strict=False)]
    trained: dict[str, Any] = {}
    if rounds:
        trained = {
            "minutes": {key: round(sum(r["minutes"][key] for r in records), 3) for key in ("train", "evaluate")},
            "curve": [[m["step"], m["reward"]] for m in rounds],
            "sampled_tokens": sum(m["sampled_tokens"] for m in rounds),
            "cost": cost_of(rounds),
        }
    return {
        **first,
        "arm": config.arm,
        "seed": config.seed,
        "conditions": config.conditions(),
        **{key: average([r[key] for r in records]) for key in ("score", "measures", "cross_play")},
        **({"also": average([r["also"] for r in records])} if "also" in first else {}),
        **{key: sum(r[key] for r in records) for key in ("episodes", "grading_errors", "ungraded_tasks", "tokens")},
        "seconds": round(sum(r["seconds"] for r in records), 2),
        "per_task": {id: [reward for r in records for reward in r["per_task"][id]] for id in first["per_task"]},
        "specialties": average([r["specialties"] for r in records]),
        **({"overlap": worst([r["overlap"] for r in records])} if all("overlap" in r for r in records) else {}),
        **({"repeats": average([r["repeats"] for r in records])} if "repeats" in first else {}),
        **trained,
        "swarm": summary(records, metrics),
    }


def summary(records: Sequence[Record], metrics: Sequence[Sequence[Metrics]]) -> dict[str, Any]:
    """What sharing did.

    `reward` is the mean own reward of a round, over nodes and rounds: of a node's own answers to fresh questions.
    `cumulative_reward` is its sum, the quantity of SAPO's table (arXiv:2509.08721) taken over own questions only;
    `training_reward` is the mean over all that rounds learned from, chosen foreign groups included, and stands beside it because
    it is probably what was published. `useful_share` is that of groups with something to teach among the foreign ones let in.
    """
    every = [m for of_node in metrics for m in of_node]
    shared = [m["swarm"] for m in every]
    admitted = sum(m["admitted"] for m in shared)
    dropped: Counter[str] = Counter()
    for m in shared:
        dropped.update(m["dropped"])
    nodes = [
        {"model": r["model"], "score": r["score"], "reward": mean(m["reward"] for m in of_node)}
        for r, of_node in zip(records, metrics or [()] * len(records), strict=True)
    ]
    return {
        "nodes": len(records),
        "reward": mean(m["reward"] for m in every),
        "cumulative_reward": sum(m["reward"] or 0.0 for m in every),
        "training_reward": mean(m["training_reward"] for m in every),
        "foreign_groups": sum(m["external"] for m in shared),
        "foreign_wanted": sum(m["external_wanted"] for m in shared),
        "admitted": admitted,
        "useful_share": sum(m["useful"] for m in shared) / admitted if admitted else None,
        "dropped": dict(sorted(dropped.items())),
        "misfits": sum(m["misfits"] for m in shared),
        "groups_sent": sum(m["groups_sent"] for m in shared),
        "bytes_sent": sum(m["bytes_sent"] for m in shared),
        "errors": sum(m["errors"] for m in shared),
        "by_node": nodes,
        "by_model": {
            model: {
                **{key: mean(n[key] for n in nodes if n["model"] == model) for key in ("score", "reward")},
                "specialties": average([r["specialties"] for r in records if r["model"] == model]),
            }
            for model in dict.fromkeys(n["model"] for n in nodes)
        },
    }


def by_specialty(per_task: Mapping[str, Sequence[float | None]], tasks: Sequence[Task]) -> dict[str, float | None]:
    """The score of each specialty (`Task.meta`), where tasks have one: the mean over its tasks of a task's mean reward."""
    of: dict[str, list[float | None]] = {}
    for task in tasks:
        name = task.meta.get("specialty")
        if name is not None:
            of.setdefault(str(name), []).append(mean(per_task[task.id]))
    return {name: mean(scores) for name, scores in sorted(of.items())}


def mean(values: Iterable[float | None]) -> float | None:
    there = [value for value in values if value is not None]
    return sum(there) / len(there) if there else None


def worst(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The largest of each number; None where nobody has it."""
    return {key: max((value[key] for value in values if value[key] is not None), default=None) for key in values[0]}


def average(values: Sequence[Any]) -> Any:
    """The mean of numbers; of mappings and lists that hold numbers, place by place. Anything else is as it is in the first."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    if all(isinstance(value, Mapping) for value in known):
        keys = dict.fromkeys(key for value in known for key in value)
        return {key: average([value.get(key) for value in known]) for key in keys}
    if all(isinstance(value, list | tuple) for value in known):
        return [average(list(place)) for place in zip(*known, strict=False)]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return sum(known) / len(known)
    return known[0]
