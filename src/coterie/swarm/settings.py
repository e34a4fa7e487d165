"""From settings to what a node is made of, and what is refused before its first round."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from coterie.assemble import Stage, write_script
from coterie.config import RunConfig
from coterie.config.swarm import SwarmConfig
from coterie.protocols.base import Protocol
from coterie.swarm.foreign import question_of
from coterie.swarm.gate import Gate, Limits
from coterie.swarm.identity import identity_of
from coterie.swarm.sharing import policy_of
from coterie.swarm.taskrefs import RELEASED, accepted, reference, task_or_reason
from coterie.swarm.words import NodeId, TaskRef
from coterie.tasks.base import TaskSet
from coterie.tokens import ChatTokenizer
from coterie.types import CoterieError, Task

Regenerate = Callable[[TaskRef], Task | str | None]


def check_run(config: RunConfig) -> None:
    """Refuse what can be refused of a run of `coterie run` before its first node has loaded its weights."""
    settings = config.swarm
    assert settings is not None
    identity_of(0, "check")  # which needs a package
    if settings.models and config.model.path not in settings.models:
        raise CoterieError(
            f"model.path = {config.model.path} plays in no node, since swarm.models names the nodes' models; leave it out, or set "
            "swarm.models"
        )
    for model in settings.models or (config.model.path,):
        of_node = with_model(config, model)
        script = write_script(of_node)
        check(of_node, settings, script.tasks, script.protocol, script.reader.tokenizer)


def with_model(config: RunConfig, path: str) -> RunConfig:
    return config.model_copy(update={"model": config.model.model_copy(update={"path": path})})


def check(config: RunConfig, settings: SwarmConfig, tasks: TaskSet, protocol: Protocol, tokenizer: ChatTokenizer) -> None:
    most = policy_of(settings.external).most
    if config.cast.kind != "self_play":
        raise CoterieError(f'cast.kind = "{config.cast.kind}": a node of a swarm plays by itself; use "self_play"')
    if most >= config.train.tasks_per_step:
        raise CoterieError(
            f"swarm.external asks for up to {most} foreign groups of train.tasks_per_step = {config.train.tasks_per_step}; "
            "leave at least one own group, without which nobody could see whether the node learns"
        )
    question_of(tasks.train[0], protocol, tokenizer)
    if (settings.share != "none" or settings.source == "own") and not any(reference(task) for task in tasks.train):
        raise CoterieError(
            f'tasks.kind = "{config.tasks.kind}" has no tasks that others could make again; use "reasoning_gym" or '
            '"pocket_specialties", or set swarm.share = "none"'
        )


def regenerator(stage: Stage) -> Regenerate:
    """Makes the tasks that the node accepts from others: those of its own settings, and the published ones of the libraries that
    its own come from, since its grader can judge these. With no reference of its own it takes all that are published."""
    own = accepted(stage.tasks.train)
    libraries = {source.partition("/")[0] for source, _ in own}
    published = {pair for pair in RELEASED if not own or pair[0].partition("/")[0] in libraries}
    return partial(task_or_reason, accept=frozenset({*own, *published}))


def make_gate(
    stage: Stage, settings: SwarmConfig, folder: Path, own: NodeId, regenerate: Regenerate, clock: Callable[[], float] = time.time
) -> Gate:
    """The node's gate, whose memory is in its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    limits = Limits(max_age=settings.keep_seconds)
    return Gate(settings.name, own, regenerate, stage.hall.grader, folder / "gate.sqlite", settings.allowed, limits, clock)
