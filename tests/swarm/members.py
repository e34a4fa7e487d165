"""Members of a swarm for tests: the pocket model, two tasks a round, four short answers each, over one SQLite file."""

from collections.abc import Callable
from pathlib import Path

from coterie.assemble import Stage, assemble
from coterie.config import RunConfig
from coterie.config.swarm import SwarmConfig
from coterie.runs import RunFolder
from coterie.swarm.exchange.base import Exchange
from coterie.swarm.node import Node, open_node


def config(seed: int = 1, **train) -> RunConfig:
    return RunConfig.model_validate(
        {
            "recipe": "test",
            "profile": "pocket",
            "arm": "test",
            "seed": seed,
            "tasks": {
                "kind": "pocket_specialties",
                "train": 32,
                "held_out": 2,
                "seed": seed,
                "specialties": ["sums", "differences"],
            },
            "protocol": {"kind": "solo", "final_tokens": 40},
            "draw": {"kind": "fixed", "episodes": 4},
            "model": {"path": "pocket", "device": "cpu", "adapter": {"kind": "lora", "rank": 2, "alpha": 4.0}},
            "train": {"steps": 4, "tasks_per_step": 2, "checkpoint_every": 2, "optimizer": {"lr": 2e-3}, **train},
        }
    )


def settings(groups: int = 1, **more) -> SwarmConfig:
    return SwarmConfig.model_validate({"name": "test", "external": {"kind": "fixed", "groups": groups}, **more})


def member(
    folder: Path,
    exchange: Exchange,
    about: SwarmConfig | None = None,
    seed: int = 1,
    make: Callable[[RunConfig], Stage] = assemble,
    **train,
) -> Node:
    return open_node(make(config(seed, **train)), about or settings(), RunFolder(folder), exchange)


def weights(node: Node) -> dict[str, list[float]]:
    return {name: p.detach().flatten().tolist() for name, p in node.learner.trainable.items()}
