"""A run that is a swarm: `coterie run` with a table [swarm]. Its nodes live below the run's folder, in nodes/node-1, node-2, …

In lockstep, one process plays a round of every node and then lets every node learn, so each draws from all that the others played
in that very round, as in the published runs (one collective a round). Keys, clock and order come from the seed, so a run repeats to
the bit, also when it was killed and resumed. Otherwise each node is a process with a pace of its own (`member`), which is what a
swarm is like and cannot be repeated.

Nodes of one seed play the same walks through the tasks whatever the arm, so arms are paired by seed. The seed of a run, not its
nodes, is the unit of replication: nodes that learn from each other are no independent samples.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coterie.assemble import Stage, assemble
from coterie.config import RunConfig
from coterie.config.swarm import SwarmConfig
from coterie.learn import checkpoint
from coterie.records import append_lines, keep_until, read_json, read_lines
from coterie.runs import RunFolder
from coterie.scoring import finish, record_of, score_run
from coterie.seeding import stream
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.identity import identity_of
from coterie.swarm.node import Node, open_node
from coterie.swarm.settings import with_model
from coterie.swarm.summary import by_specialty, joint, merge

BEGIN, ROUND_SECONDS = 1_000_000_000.0, 60.0
"""The clock of nodes in lockstep: rounds, not seconds, decide how old an envelope is and what a node may send."""


def play_swarm(folder: RunFolder, config: RunConfig) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Train and score all nodes, from wherever they are, and make one record of it. Without training steps the models are scored
    as they are, each different one once."""
    settings = config.swarm
    assert settings is not None
    if not config.train.steps:
        played = [_model_of(settings, index) or config.model.path for index in range(settings.nodes)]
        scored = {model: _scored(assemble(with_model(config, model))) for model in dict.fromkeys(played)}
        # each kind of node once where there are as many of each, else every node, so that the means are those of the trained ones
        weighed = list(scored) if len({played.count(model) for model in scored}) == 1 else played
        conversations = [line for _, lines in scored.values() for line in lines]
        return merge(config, [scored[model][0] for model in weighed]), conversations
    members = [make_member(folder.path, config, index) for index in range(settings.nodes)]
    keep_until(folder.metrics_file, min(_kept(member) for member in members))
    if settings.lockstep:
        _in_lockstep(folder, settings, members)
    else:
        from coterie.swarm.member import play_apart  # which starts processes

        play_apart(folder, settings, members)
    folder.set_state(status="evaluating")
    records = [read_json(member.result_file) for member in members]
    conversations = [{"node": member.name, **line} for member in members for line in read_lines(member.path / "evaluation.jsonl")]
    metrics = [read_lines(member.metrics_file) for member in members]
    return merge(config, records, metrics), conversations[:: settings.nodes]


def node_seed(seed: int, index: int) -> int:
    """The training seed of a node: of its walk through the tasks, its noise, its adapter."""
    return int(stream(seed, "node", index).integers(2**31))


def make_member(folder: Path, config: RunConfig, index: int) -> RunFolder:
    """The folder of a node, counted from 0, with its configuration."""
    settings = config.swarm
    assert settings is not None
    of_node = config.model_copy(update={"seed": node_seed(config.seed, index)})
    if model := _model_of(settings, index):
        of_node = with_model(of_node, model)
    member = RunFolder(folder / "nodes" / f"node-{index + 1}")
    member.create(of_node)
    return member


def score_member(stage: Stage, member: RunFolder) -> None:
    """Score a node that has played its last round, and finish its folder. A node that is finished stays as it is."""
    if not member.finished:
        record, conversations = record_of(stage, member)
        finish(member, {**record, "specialties": by_specialty(record["per_task"], stage.tasks.held_out)}, conversations)


def _model_of(settings: SwarmConfig, index: int) -> str | None:
    """The model of a node, counted from 0, where they differ."""
    return settings.models[index % len(settings.models)] if settings.models else None


def _scored(stage: Stage) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    record, conversations = score_run(stage)
    return {**record, "specialties": by_specialty(record["per_task"], stage.tasks.held_out)}, conversations


class _Clock:
    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> float:
        return self.now


def _in_lockstep(folder: RunFolder, settings: SwarmConfig, members: Sequence[RunFolder]) -> None:
    clock = _Clock()
    exchange = SqliteExchange(folder.path / "exchange.sqlite")
    seed = folder.config().seed
    nodes: list[Node] = []
    try:
        for index, member in enumerate(members):
            identity = identity_of(seed, "node-key", index)
            nodes.append(open_node(assemble(member.config()), settings, member, exchange, clock, identity))
        folder.set_state(status="training")
        log_rounds(folder, members)
        while (round := min(node.state.round for node in nodes)) < nodes[0].stage.config.train.steps:
            clock.now = BEGIN + ROUND_SECONDS * round
            behind = [node for node in nodes if node.state.round == round]  # all of them, but for rounds after a kill
            metrics = [node.learn(played) for node, played in [(node, node.play()) for node in behind]]
            if len(behind) == len(nodes):
                append_lines(folder.metrics_file, [joint(metrics)])
            else:
                log_rounds(folder, members)
        for node, member in zip(nodes, members, strict=True):
            node.run()  # leaves a checkpoint
            score_member(node.stage, member)
    finally:
        for node in nodes:
            node.gate.close()
        exchange.close()


def _kept(member: RunFolder) -> int:
    """How many rounds of a node are not played again."""
    found = checkpoint.latest(member.checkpoints)
    return int(found.name.removeprefix("step-")) if found else 0


def log_rounds(folder: RunFolder, members: Sequence[RunFolder]) -> None:
    """Bring the metrics of the whole run up to the rounds that all nodes have logged, for whoever watches it."""
    logged = len(read_lines(folder.metrics_file))
    rounds = zip(*(read_lines(member.metrics_file)[logged:] for member in members), strict=False)
    append_lines(folder.metrics_file, [joint(round) for round in rounds])
