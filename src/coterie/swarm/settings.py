"""What settings a node refuses, before its first round."""

from coterie.assemble import Stage
from coterie.config.swarm import SwarmConfig
from coterie.swarm.foreign import question_of
from coterie.swarm.sharing import Policy
from coterie.swarm.taskrefs import reference
from coterie.types import CoterieError


def check(stage: Stage, settings: SwarmConfig, policy: Policy) -> None:
    config = stage.config
    if config.cast.kind != "self_play":
        raise CoterieError(f'cast.kind = "{config.cast.kind}": a node of a swarm plays by itself; use "self_play"')
    if policy.most >= config.train.tasks_per_step:
        raise CoterieError(
            f"swarm.external asks for up to {policy.most} foreign groups of train.tasks_per_step = {config.train.tasks_per_step}; "
            "leave at least one own group, without which nobody could see whether the node learns"
        )
    task = stage.tasks.train[0]
    question_of(task, stage.hall)
    if (settings.share != "none" or settings.source == "own") and not any(reference(task) for task in stage.tasks.train):
        raise CoterieError(
            f'tasks.kind = "{config.tasks.kind}" has no tasks that others could make again; use "reasoning_gym" or '
            '"pocket_specialties", or set swarm.share = "none"'
        )
