"""A node of a swarm: rounds in which it plays its own tasks, shares them, and learns from its own groups and others' (SAPO,
arXiv:2509.08721, Algorithm 1).

A node needs nobody. There is no clock for all, no registrar and no peer to wait for: a round takes what has arrived, and with an
empty exchange, or one that fails, it is a step of `train`, bit for bit. Errors of the exchange are counted and shown by `status`.

Measured is what the paper's curves leave open. `reward` is that of the node's own answers to fresh questions. `training_reward` is
the mean over all that a round learned from, foreign groups included, which is probably what was published: it rises by choosing
foreign groups alone, without anything being learned.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from coterie.assemble import Stage
from coterie.config.swarm import SwarmConfig
from coterie.credit.base import Advantages
from coterie.evaluate import episode_record
from coterie.learn import checkpoint
from coterie.learn.learner import Learner
from coterie.learn.rows import rows_from_group
from coterie.records import append_lines, keep_until, write_json
from coterie.runs import RunFolder
from coterie.seeding import stream
from coterie.swarm import sharing
from coterie.swarm.exchange.base import Exchange
from coterie.swarm.foreign import Foreign, as_group, divided
from coterie.swarm.gate import Gate
from coterie.swarm.identity import Identity, load_identity
from coterie.swarm.intake import Intake, as_harvest
from coterie.swarm.outbox import Outbox, Sent
from coterie.swarm.pool import Harvest, Pool
from coterie.swarm.settings import Regenerate, check, make_gate, regenerator
from coterie.swarm.state import Played, State
from coterie.swarm.taskrefs import reference
from coterie.swarm.trouble import Trouble
from coterie.swarm.words import Rollouts, TaskRef
from coterie.train import Drawn, draw_episodes, play_metrics, tasks_at
from coterie.types import Group, Row, Task


class Node:
    """`exchange` and `gate` stay their owner's to close. `regenerate` is what the gate was given."""

    def __init__(
        self,
        stage: Stage,
        settings: SwarmConfig,
        folder: RunFolder,
        identity: Identity,
        exchange: Exchange,
        gate: Gate,
        regenerate: Regenerate,
        clock: Callable[[], float] = time.time,
    ):
        self.stage, self.settings, self.folder, self.identity = stage, settings, folder, identity
        self.policy = sharing.policy_of(settings.external)
        check(stage.config, settings, stage.tasks, stage.hall.protocol, stage.hall.tokenizer)
        self._exchange, self.gate, self._regenerate, self._clock = exchange, gate, regenerate, clock
        self.trouble = Trouble()
        """Of this process, the exchange's."""
        self.learner = Learner(stage.model, stage.config.train, seed=stage.config.seed)
        folder.path.mkdir(parents=True, exist_ok=True)
        self._outbox = Outbox(settings.name, identity, exchange, folder.path / "outbox.json", clock, self.trouble)
        self._remember = self._with_old_logprobs if settings.correction == "clipped" else lambda foreign: foreign
        self._intake = Intake(exchange, gate, settings.only_useful, settings.keep_seconds, clock, self.trouble, self._remember)
        self.pool = Pool(folder.path / "pool.jsonl", settings.max_age, settings.pool_groups, settings.uses)
        self.state = State()
        found = checkpoint.latest(folder.checkpoints)
        if found:
            extra = checkpoint.load(found, self.learner)
            self.state = State(**{**extra, "past": [sharing.Past(**past) for past in extra["past"]]})
        self._saved = self.state.round if found else None
        for file in (folder.metrics_file, folder.episodes_file):
            keep_until(file, self.state.round)
        stage.engine.refresh(self.state.round)

    @property
    def finished(self) -> bool:
        return self.state.round >= self.stage.config.train.steps

    def run(self, stop: Callable[[], bool] = lambda: False) -> None:
        """Play rounds to the last, or until `stop`, and leave a checkpoint."""
        while not self.finished and not stop():
            self.round()
        if self._saved != self.state.round:
            self.save()

    def round(self) -> dict[str, Any]:
        """One round, logged, and with a checkpoint where one is due. Returns its metrics."""
        return self.learn(self.play())

    def play(self) -> Played:
        """The first half: play own tasks and share them. For a simulation, in which all nodes share before one draws."""
        start, errors = time.perf_counter(), self.trouble.count
        state, total = self.state, self.stage.config.train.tasks_per_step
        external = self.policy.external(state.round, state.past)
        foreign = self._draw(external) if self.settings.fill else None
        count = total - (external if foreign is None else len(foreign))
        tasks = tasks_at(self.stage.tasks.train, self.stage.config.seed, state.taken, count)
        state.taken += count
        drawn = draw_episodes(self.stage, tasks, state.round)
        sent = self._share(drawn)
        return Played(external, drawn, drawn.groups(self.stage.draw), foreign, sent, errors, time.perf_counter() - start)

    def learn(self, played: Played) -> dict[str, Any]:
        """The second half: draw foreign groups, and make one step on them and the own ones."""
        start = time.perf_counter()
        state, stage, config = self.state, self.stage, self.stage.config.train
        foreign = self._draw(played.external) if played.foreign is None else played.foreign
        made = [group for one in foreign if (group := self._group(one)) is not None]
        own_credits = [self._credit(group) for group in played.groups]
        own_rows = _rows(played.groups, own_credits)
        foreign_rows = _rows(made, [self._credit(group) for group in made])
        if self.settings.correction == "none":
            foreign_rows = [replace(row, logprobs=None) for row in foreign_rows]
        learned = self.learner.step([*own_rows, *foreign_rows])
        stage.engine.refresh(state.round + 1)
        metrics = {
            "step": state.round + 1,
            **play_metrics(stage, played.drawn, played.groups, own_credits),
            "training_reward": mean_reward((*played.groups, *made)),
            **learned,
            "sampled_tokens": sum(len(m.ids) for pool in played.drawn.pools for e in pool for m in e.messages),
            "swarm": self._measures(played, len(foreign), made, learned.get("unsampled_surprise")),
            "time": {"play": played.seconds, "learn": time.perf_counter() - start},
        }
        samples = [
            {"step": state.round + 1, **episode_record(e, c)}
            for group, credits in zip(played.groups, own_credits, strict=True)
            for e, c in zip(group.episodes, credits, strict=True)
        ][: config.sample_episodes]
        self._end(metrics, played, samples)
        return metrics

    def status(self) -> dict[str, Any]:
        """What the node is doing, for people and for JSON. After each round it is in `status.json` of the node's folder."""
        return {
            "node": self.identity.node,
            "swarm": self.settings.name,
            "round": self.state.round,
            "rounds": self.stage.config.train.steps,
            "pool": len(self.pool.open(self.state.round, self.state.drawn)),
            "groups_sent": self.state.groups_sent,
            "bytes_sent": self.state.bytes_sent,
            "errors": self.trouble.count,
            "last_error": self.trouble.last,
            "exchange": self.trouble.guard("asking the exchange for its status", self._exchange.status) or "not reachable",
            "time": self._clock(),
        }

    def save(self) -> None:
        """Write a checkpoint, then forget what could only be needed by rounds before it."""
        state, config = self.state, self.stage.config.train
        checkpoint.save(self.folder.checkpoints, state.round, self.learner, asdict(state), config.keep_checkpoints)
        self._saved = state.round
        oldest = state.round - (config.keep_checkpoints - 1) * config.checkpoint_every
        self.pool.forget(oldest)
        self._outbox.forget(oldest)

    def _measures(self, played: Played, drawn: int, made: Sequence[Group], surprise: float | None) -> dict[str, Any]:
        """Of a round's exchange with others. `surprise`, of the foreign tokens that have an advantage, is in nats a token, under
        this node's policy; with correction "clipped" nobody computes it."""
        harvest = self.pool.harvest(self.state.round) or Harvest(self.state.round)
        return {
            "local": len(played.drawn.tasks),
            "external": len(made),
            "external_wanted": played.external,
            "foreign_reward": mean_reward(made),
            "foreign_surprise": surprise,
            "misfits": sum(len(group.pool) - len(group.episodes) for group in made),
            "not_made": drawn - len(made),
            "received": harvest.received,
            "admitted": harvest.admitted,
            "useful": harvest.useful,
            "useful_share": harvest.useful / harvest.admitted if harvest.admitted else None,
            "dropped": dict(harvest.dropped),
            "pool": len(self.pool.open(self.state.round, self.state.drawn)),
            "groups_sent": played.sent.groups,
            "bytes_sent": played.sent.bytes,
            "not_sent": dict(played.sent.failed),
            "errors": self.trouble.count - played.errors,
        }

    def _end(self, metrics: dict[str, Any], played: Played, samples: Sequence[Mapping[str, Any]]) -> None:
        state, config = self.state, self.stage.config.train
        state.past.append(
            sharing.Past(played.external, metrics["reward"], metrics["swarm"]["admitted"], metrics["swarm"]["useful"])
        )
        del state.past[: -sharing.MEMORY]
        if self.settings.source == "own" and self.pool.harvest(state.round + 1) is None:
            self.pool.add(self._own_harvest(played))
        state.round += 1
        state.drawn = self.pool.recent(state.round, state.drawn)
        append_lines(self.folder.episodes_file, samples)
        append_lines(self.folder.metrics_file, [metrics])
        if state.round % config.checkpoint_every == 0 or self.finished:
            self.save()
        write_json(self.folder.path / "status.json", self.status())

    # own groups

    def _share(self, drawn: Drawn) -> Sent:
        state, settings = self.state, self.settings
        able = [(ref, i) for i, task in enumerate(drawn.tasks) if (ref := reference(task)) is not None]
        rewards = [[e.reward for e in drawn.pools[i]] for _, i in able]
        rng = stream(self.stage.config.seed, "swarm-share", state.round)
        chosen = [able[i] for i in sharing.choose(rewards, settings.share, settings.share_at_most, rng)]
        sent = self._outbox.send(state.round, [self._rollouts(ref, drawn, i) for ref, i in chosen])
        state.groups_sent += sent.groups
        state.bytes_sent += sent.bytes
        return sent

    def _rollouts(self, ref: TaskRef, drawn: Drawn, index: int) -> Rollouts:
        """The whole group of a task. Text as it was sampled, with the space around it, so that it is encoded to the same
        ids again."""
        tokenizer = self.stage.hall.tokenizer
        said = [e.messages[-1] for e in drawn.pools[index] if e.messages]
        texts = tuple(tokenizer.decode(m.ids[:-1] if m.stop == "eos" else m.ids) for m in said)
        policy = f"{Path(self.stage.config.model.path).name}@{self.learner.updates}"[-128:]
        return Rollouts(ref, drawn.tasks[index].question, texts, self.state.round, policy)

    def _own_harvest(self, played: Played) -> Harvest:
        """This round's own groups, to be drawn from in later ones as if they were foreign."""
        groups = []
        for i, (task, pool) in enumerate(zip(played.drawn.tasks, played.drawn.pools, strict=True)):
            ref, rewards = reference(task), tuple(e.reward for e in pool if e.reward is not None)
            if ref is not None and len(rewards) == len(pool) > 1:
                groups.append(Foreign(self.identity.node, self._rollouts(ref, played.drawn, i), rewards))
        return as_harvest(self.state.round + 1, None, groups, Counter(), self.settings.only_useful, self._remember)

    # foreign groups

    def _draw(self, count: int) -> list[Foreign]:
        """At most `count` groups of those that have come in, this round's harvest included."""
        state, settings = self.state, self.settings
        if isinstance(self.policy, sharing.Fixed) and not self.policy.groups:
            return []
        if settings.source == "others" and self.pool.harvest(state.round) is None:
            with self.gate.together():
                self.pool.add(self._intake.harvest(state.round, self.pool.cursor))
        candidates = self.pool.open(state.round, state.drawn)
        nodes = [group.node for _, group in candidates]
        shares = self.gate.shares(nodes) if nodes and settings.drawn == "weighted" and settings.source == "others" else None
        rng = stream(self.stage.config.seed, "swarm-draw", state.round)
        chosen = [candidates[i] for i in sharing.draw(count, len(candidates), shares, rng)]
        for key, _ in chosen:
            state.drawn[key] = state.drawn.get(key, 0) + 1
        return [group for _, group in chosen]

    def _group(self, foreign: Foreign) -> Group | None:
        """The group as the learner needs it, or None where its task cannot be made (any more)."""
        task = self._regenerate(foreign.rollouts.ref)
        if not isinstance(task, Task) or self.stage.hall.protocol.check(task):
            return None
        return as_group(foreign, task, self.stage.hall)

    def _with_old_logprobs(self, foreign: Foreign) -> Foreign:
        """With the log-probabilities of now."""
        group = self._group(foreign)
        if group is None:
            return foreign
        rows = self._with_logprobs(_rows([group], [[[0.0]] * len(group.episodes)]))
        fitting = {row.episode: row.logprobs for row in rows}
        return replace(foreign, logprobs=tuple(fitting.get(i, ()) for i in range(len(foreign.rewards))))

    # both

    def _credit(self, group: Group) -> Advantages:
        advantages = self.stage.credit.advantages(group, {})
        return divided(advantages, group.pool_rewards) if self.settings.divide_by_std else advantages

    def _with_logprobs(self, rows: Sequence[Row]) -> list[Row]:
        found = self.learner.logprobs(rows)
        return [replace(row, logprobs=logprobs) for row, logprobs in zip(rows, found, strict=True)]


def open_node(
    stage: Stage,
    settings: SwarmConfig,
    folder: RunFolder,
    exchange: Exchange,
    clock: Callable[[], float] = time.time,
    identity: Identity | None = None,
) -> Node:
    """A node that lives in a folder (hold `folder.locked()`: two that share it would send under the same numbers), as it was when
    its process ended: key `node.pem` unless an `identity` is given, gate, pool, outbox, checkpoints. Close its `gate` in the
    end."""
    identity, regenerate = identity or load_identity(folder.path / "node.pem"), regenerator(stage)
    gate = make_gate(stage, settings, folder.path, identity.node, regenerate, clock)
    return Node(stage, settings, folder, identity, exchange, gate, regenerate, clock)


def _rows(groups: Sequence[Group], credits: Sequence[Advantages]) -> list[Row]:
    return [row for group, credit in zip(groups, credits, strict=True) for row in rows_from_group(group, credit)]


def mean_reward(groups: Sequence[Group]) -> float | None:
    """The mean over groups of a group's mean reward."""
    of_groups = [[r for r in group.pool_rewards if r is not None] for group in groups]
    means = [sum(rewards) / len(rewards) for rewards in of_groups if rewards]
    return sum(means) / len(means) if means else None
