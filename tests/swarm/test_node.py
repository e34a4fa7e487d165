"""Nodes over one SQLite file: alone they are plain RL, together they learn from each other and from nobody else."""

import json
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch

from coterie.assemble import assemble
from coterie.config import RunConfig
from coterie.records import read_lines
from coterie.runs import RunFolder
from coterie.swarm.envelope import decode, encode
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.foreign import question_of
from coterie.swarm.pool import Pool
from coterie.swarm.taskrefs import reference, task_or_reason
from coterie.swarm.words import Envelope, Rollouts
from coterie.tasks.pocket_specialties import specialty_tasks
from coterie.train import train
from coterie.types import CoterieError
from tests.swarm.members import config, member, settings, weights
from tests.swarm.nodes import EVE


@pytest.fixture
def exchange(tmp_path):
    made = SqliteExchange(tmp_path / "swarm.sqlite")
    yield made
    made.close()


def learned_rows(node, monkeypatch):
    """The rows of each of the node's steps, as they come to its learner."""
    steps, step = [], node.learner.step

    def spy(rows):
        steps.append(list(rows))
        return step(rows)

    monkeypatch.setattr(node.learner, "step", spy)
    return steps


def bodies(exchange, node=None):
    return [e for e in exchange.draw(0, 1000) if node in (None, e.node)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Weights after three steps of `coterie train`."""
    stage = assemble(config(steps=3))
    learner = train(stage, RunFolder(tmp_path_factory.mktemp("plain")))
    return {name: p.detach().flatten().tolist() for name, p in learner.trainable.items()}


class Broken:
    """An exchange of which nothing works."""

    def __getattr__(self, name):
        def fail(*_):
            raise OSError(f"{name} has failed")

        return fail


@pytest.mark.parametrize("about", [settings(0), settings(1, fill=True)], ids=["J is 0", "nobody is there"])
def test_alone_it_is_plain_rl_bit_for_bit(tmp_path, exchange, plain, about):
    node = member(tmp_path / "a", exchange, about, steps=3)
    node.run()
    assert weights(node) == plain


def test_a_broken_exchange_never_stops_a_round_and_is_told(tmp_path, plain):
    node = member(tmp_path / "a", Broken(), settings(1, fill=True), steps=3)
    node.run()
    assert weights(node) == plain
    status = json.loads((tmp_path / "a" / "status.json").read_text())
    assert status["errors"] >= 9
    assert "has failed" in status["last_error"]
    assert status["exchange"] == "not reachable"
    first = read_lines(tmp_path / "a" / "metrics.jsonl")[0]["swarm"]
    assert (first["not_sent"], first["groups_sent"], first["bytes_sent"]) == ({"exchange": 2}, 0, 0)


def test_foreign_groups_become_rows(tmp_path, exchange, monkeypatch):
    """Task, prompt, ids, advantages and surprise of the second node's foreign rows, each made another way here."""
    ann, ben = (member(tmp_path / name, exchange, settings(1, only_useful=False), seed=i) for i, name in enumerate("ab", start=1))
    shown = ann.play().drawn.pools[0][0].messages[0].prompt_ids  # the same protocol and tokenizer, for the task as it was played
    steps = learned_rows(ben, monkeypatch)
    before = ben.play()
    tokenizer = ben.stage.hall.tokenizer
    (sent,) = bodies(exchange, ann.identity.node)
    shared = decode(sent.body)[0].rollouts
    task = task_or_reason(shared.ref)
    rewards = ben.stage.hall.grader.grade_tasks([(text, task) for text in shared.completions])
    row_logprobs = [exact_logprobs(ben, shown, text) for text in shared.completions]
    metrics = ben.learn(before)
    own, foreign = steps[0][:4], steps[0][4:]
    assert [row.task_id for row in own] == [before.drawn.tasks[0].id] * 4
    assert [row.task_id for row in foreign] == [task.id] * 4
    for row, text, reward in zip(foreign, shared.completions, rewards, strict=True):
        assert row.prompt_ids == shown
        assert tokenizer.decode(row.completion_ids) == text
        assert row.completion_ids[-1] == tokenizer.stop_ids[0]
        assert row.advantage == pytest.approx(reward - sum(rewards) / 4, abs=1e-12)
        assert row.logprobs is None, "as published: nothing is corrected"
    swarm = metrics["swarm"]
    paid = [x for row, logprobs in zip(foreign, row_logprobs, strict=True) if row.advantage for x in logprobs]
    assert paid
    assert swarm["foreign_surprise"] == pytest.approx(-sum(paid) / len(paid), abs=1e-4)
    assert (swarm["local"], swarm["external"], swarm["admitted"], swarm["bytes_sent"]) == (
        1,
        1,
        1,
        len(bodies(exchange, ben.identity.node)[0].body),
    )
    own_rewards = [e.reward for e in before.drawn.pools[0]]
    assert metrics["reward"] == pytest.approx(sum(own_rewards) / 4)
    assert metrics["training_reward"] == pytest.approx(sum(own_rewards + rewards) / 8)


def exact_logprobs(node, prompt, text):
    """By one forward pass of transformers over a prompt and a completion, nothing batched or cut."""
    tokenizer = node.stage.hall.tokenizer
    ids = [*prompt, *tokenizer.encode_text(text), tokenizer.stop_ids[0]]
    with torch.no_grad():
        logits_TV = node.stage.model(input_ids=torch.tensor([ids])).logits[0]
    first = len(prompt)
    return [torch.log_softmax(logits_TV[t - 1], -1)[ids[t]].item() for t in range(first, len(ids))]


def test_what_is_sent_is_the_text_that_was_sampled(tmp_path, exchange):
    """The whole group, signed, from a reference; encoded again it is what was sampled, so this node's own text is on policy."""
    node = member(tmp_path / "a", exchange)
    played = node.play()
    (sent,) = bodies(exchange)
    envelope = decode(sent.body)[0]
    assert (sent.node, sent.seq, envelope.rollouts.round, envelope.rollouts.policy) == (node.identity.node, 0, 0, "pocket@0")
    (task,), (pool,) = played.drawn.tasks, played.drawn.pools
    assert task_or_reason(envelope.rollouts.ref) == task
    for text, episode in zip(envelope.rollouts.completions, pool, strict=True):
        said = episode.messages[0]
        assert (*node.stage.hall.tokenizer.encode_text(text), said.ids[-1]) == said.ids


def test_the_pool_ages_by_rounds_and_each_group_is_drawn_once(tmp_path, exchange):
    feed(exchange, 3)
    node = member(tmp_path / "a", exchange, settings(1, max_age=3, share="none"), steps=9)
    sizes = [node.round()["swarm"] for _ in range(4)]
    assert [one["external"] for one in sizes] == [1, 1, 1, 0]
    aged = member(tmp_path / "b", exchange, settings(1, max_age=2, share="none"), steps=9)
    assert [aged.round()["swarm"]["external"] for _ in range(4)] == [1, 1, 0, 0], "the third was too old by then"
    again = member(tmp_path / "c", exchange, settings(1, max_age=9, uses=2, share="none"), steps=9)
    assert [again.round()["swarm"]["external"] for _ in range(7)] == [1] * 6 + [0]


def test_groups_that_teach_nothing_stay_out_of_the_pool_if_so_set(tmp_path, exchange):
    """Of three groups one has two rewards. Weighted draws take what there is, too."""
    for seq, task in enumerate(specialty_tasks(3, 1, seed=99).train):
        share(exchange, EVE, seq, task, (f"Answer: {task.answer}", f"Answer: {'1000' if seq == 1 else task.answer}"))
    found = {}
    for only in (True, False):
        node = member(tmp_path / str(only), exchange, settings(1, only_useful=only, drawn="weighted", share="none"))
        found[only] = [node.round()["swarm"] for _ in range(2)]
        assert (found[only][0]["admitted"], found[only][0]["useful"], found[only][0]["useful_share"]) == (
            3,
            1,
            pytest.approx(1 / 3),
        )
    assert [one["external"] for one in found[True]] == [1, 0]
    assert [one["external"] for one in found[False]] == [1, 1]
    assert found[True][0]["foreign_reward"] == 0.5


def feed(exchange, count, key=EVE, first=0, **changes):
    """Groups of pocket tasks from a node that does nothing but share; the first of its two answers is right."""
    for seq, task in enumerate(specialty_tasks(first + count, 1, seed=99).train[first:], start=first):
        share(exchange, key, seq, task, (f"Answer: {task.answer}", "Answer: 1000"), **changes)


def share(exchange, key, seq, task, completions, **changes):
    rollouts = replace(Rollouts(reference(task), task.question, completions, 0, "eve@0"), **changes)
    exchange.publish(key.node, seq, encode(Envelope("test", key.node, seq, time.time(), rollouts), key))


def test_garbage_changes_nothing_in_an_honest_node(tmp_path):
    """Two honest nodes, with and without an attacker: the same weights, bit for bit, and every drop has its reason."""
    found = {}
    for attacked in (False, True):
        place = tmp_path / str(attacked)
        exchange = SqliteExchange(place / "swarm.sqlite")
        nodes = [member(place / name, exchange, settings(1), seed=i) for i, name in enumerate("ab", start=1)]
        for round in range(3):
            for node in nodes:
                if attacked and round < 2:
                    exchange.publish(EVE.node, 100 * round + node.stage.config.seed, b"garbage")
                if attacked and round == 1 and node is nodes[0]:
                    exchange.publish(EVE.node, 50, bodies(exchange, node.identity.node)[0].body)
                    exchange.publish(nodes[1].identity.node, 77, b"in the name of an honest node")
                    feed(exchange, 2, question="What is 1 + 1?")
                node.round()
        found[attacked] = [weights(node) for node in nodes]
        used = [m["swarm"]["external"] for node in nodes for m in read_lines(node.folder.metrics_file)]
        dropped = [m["swarm"]["dropped"] for node in nodes for m in read_lines(node.folder.metrics_file)]
        assert sum(used) > 0, "no foreign group was learned from, so that nothing is shown"
        assert any(dropped) is attacked
    assert {reason for of_round in dropped for reason in of_round} == {"schema", "mismatch", "question"}
    assert found[True] == found[False]
    assert found[True][0] != found[True][1]


def test_a_resumed_node_is_the_same_node(tmp_path, exchange):
    """Killed after its third round, with its last checkpoint after the second: the same identity, weights and draws as a node that
    never stopped; its numbers go on, and nothing is sent twice. Breaks when the pool lives in memory: the gate lets in once."""
    feed(exchange, 6)
    other = SqliteExchange(tmp_path / "other.sqlite")
    for one in bodies(exchange):
        other.publish(one.node, one.seq, one.body)
    about = settings(1, only_useful=False)
    never = member(tmp_path / "never", other, about)
    never.run()
    killed = member(tmp_path / "killed", exchange, about)
    for _ in range(3):
        killed.round()
    with open(tmp_path / "killed" / "pool.jsonl", "a") as file:
        file.write('{"round": 3, "cur')  # the kill came in the middle of a line
    again = member(tmp_path / "killed", exchange, about)
    assert again.state.round == 2
    assert again.identity.node == killed.identity.node
    again.run()
    assert weights(again) == weights(never)
    assert again.state.drawn == never.state.drawn
    assert len(again.state.drawn) == 4
    assert [e.seq for e in bodies(exchange, again.identity.node)] == [0, 1, 2, 3]
    kept = Pool(tmp_path / "killed" / "pool.jsonl", 16, 99, 1)
    assert [kept.harvest(round) is not None for round in range(5)] == [True] * 4 + [False], "nothing was glued to the torn line"
    texts = [decode(e.body)[0].rollouts for e in bodies(exchange, again.identity.node)]
    assert texts == [decode(e.body)[0].rollouts for e in bodies(other, never.identity.node)]
    figures = [
        [(m["step"], m["reward"], m["swarm"]["external"]) for m in read_lines(n.folder.metrics_file)] for n in (again, never)
    ]
    assert figures[0] == figures[1]
    assert len(figures[0]) == 4
    other.close()


def test_clipped_keeps_the_logprobs_of_receipt(tmp_path, exchange, monkeypatch):
    """A group that waits for a round: old log-probabilities are those under the weights that received it, which have changed."""
    feed(exchange, 2)
    kept = {}
    for correction in ("clipped", "none"):
        node = member(tmp_path / correction, exchange, settings(1, correction=correction, share="none"), optimizer={"lr": 2e-2})
        steps = learned_rows(node, monkeypatch)
        start = weights(node)
        node.round()
        waited = node.pool.open(1, node.state.drawn)[0][1]
        assert weights(node) != start
        now = {}
        node.learn(record(node, waited, now))
        foreign = [row for row in steps[1] if row.task_id == task_or_reason(waited.rollouts.ref).id]
        kept[correction] = [x for row in foreign for x in row.logprobs or ()]
        current = [x for of_text in now["logprobs"] for x in of_text]
        assert kept[correction] != pytest.approx(current, abs=1e-4)
    assert kept["none"] == [], "those of the step itself"
    fresh = member(tmp_path / "fresh", exchange, settings(1))
    prompt = foreign[0].prompt_ids
    expected = [x for text in waited.rollouts.completions for x in exact_logprobs(fresh, prompt, text)]
    assert kept["clipped"] == pytest.approx(expected, abs=1e-4)


def record(node, waited, into):
    """The first half of a round, and the log-probabilities of a group just before the second."""
    played = node.play()
    task = task_or_reason(waited.rollouts.ref)
    prompt, _ = question_of(task, node.stage.hall.protocol, node.stage.hall.tokenizer)
    into["logprobs"] = [exact_logprobs(node, prompt, text) for text in waited.rollouts.completions]
    return played


def test_own_older_groups_are_a_control(tmp_path, exchange, monkeypatch):
    """From the second round on, one group is drawn from earlier rounds of its own; what others share is not read."""
    feed(exchange, 3)
    node = member(tmp_path / "a", exchange, settings(1, source="own", only_useful=False))
    steps = learned_rows(node, monkeypatch)
    node.run()
    own = [rows[0].task_id for rows in steps]
    assert len(steps[0]) == 4
    for round, rows in enumerate(steps[1:], start=1):
        assert len(rows) == 8
        assert rows[4].task_id in own[:round]
    assert sum(m["swarm"]["received"] for m in read_lines(node.folder.metrics_file)[:1]) == 0


def test_an_exchange_that_began_anew_is_read_from_its_start(tmp_path):
    """Its numbers begin at 1 again. A node that waited for higher ones would be alone and not know it."""
    first = SqliteExchange(tmp_path / "first.sqlite")
    feed(first, 5)
    node = member(tmp_path / "a", first, settings(1))
    assert node.round()["swarm"]["received"] == 5
    second = SqliteExchange(tmp_path / "second.sqlite")
    feed(second, 2, first=5)
    moved = member(tmp_path / "a", second, settings(1))
    assert moved.round()["swarm"]["received"] == 5, "the round is played again, with what it found the first time"
    assert moved.round()["swarm"]["admitted"] == 2


def test_numbers_pass_over_those_that_somebody_took(tmp_path, exchange):
    """Else what this node sends is taken for the copy of what is there. And a number near the end of all leaves it as it was."""
    node = member(tmp_path / "a", exchange)
    exchange.publish(node.identity.node, 3, b"not mine")
    node.round()
    exchange.publish(node.identity.node, 2**62, b"not mine either")
    node.round()
    assert [e.seq for e in bodies(exchange)] == [3, 4, 2**62, 5]


def test_what_cannot_work_is_refused_before_the_first_round(tmp_path, exchange):
    def stage(config: RunConfig, **changes):
        return assemble(RunConfig.model_validate({**config.model_dump(), **changes}))

    with pytest.raises(CoterieError, match=r"up to 2 foreign groups of train\.tasks_per_step = 2; leave at least one own"):
        member(tmp_path / "a", exchange, settings(2))
    with pytest.raises(CoterieError, match=r'tasks\.kind = "pocket" has no tasks that others could make again'):
        member(tmp_path / "b", exchange, make=lambda c: stage(c, tasks={"kind": "pocket", "train": 8, "held_out": 2}))


@pytest.mark.slow
def test_kill_9_in_the_middle_of_anything(tmp_path, exchange):
    """The process is killed three times, wherever it is; in the end the weights are those of a node that never stopped."""
    feed(exchange, 8)
    other = SqliteExchange(tmp_path / "other.sqlite")
    for one in bodies(exchange):
        other.publish(one.node, one.seq, one.body)
    about, steps = settings(1, max_age=24), 24
    code = (
        "import torch; torch.set_num_threads(1)\n"
        "from pathlib import Path; from tests.swarm.members import *; from coterie.swarm.exchange.sqlite import SqliteExchange\n"
        f"node = member(Path({str(tmp_path / 'killed')!r}), SqliteExchange({str(tmp_path / 'swarm.sqlite')!r}), "
        f"settings(1, max_age=24), steps={steps})\n"
        "node.run()\n"
    )
    metrics, seen = tmp_path / "killed" / "metrics.jsonl", 0
    for _ in range(3):
        process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code], stderr=subprocess.DEVNULL)
        while process.poll() is None and len(read_lines(metrics)) < seen + 5:
            time.sleep(0.02)
        assert process.poll() is None, "it ended before it could be killed"
        process.kill()
        process.wait()
        seen = len(read_lines(metrics))
    again = member(tmp_path / "killed", exchange, about, steps=steps)
    again.run()
    never = member(tmp_path / "never", other, about, steps=steps)
    never.run()
    assert weights(again) == weights(never)
    sent = [decode(e.body)[0].rollouts for e in bodies(exchange, again.identity.node)]
    rounds = [one.round for one in sent]
    assert rounds == sorted(set(rounds)), "no round was sent twice"
    assert len(rounds) >= steps - 3
    other.close()


def test_a_round_of_which_a_part_was_published_is_published_whole_under_its_numbers(tmp_path, exchange):
    """A node that is killed between two envelopes, and plays the round again."""
    node = member(tmp_path / "a", exchange, settings(0))
    whole = exchange.publish

    def killed(key, seq, body):
        if seq == 1:
            raise KeyboardInterrupt
        whole(key, seq, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            node.round()
    assert [e.seq for e in bodies(exchange)] == [0]
    node.gate.close()
    again = member(tmp_path / "a", exchange, settings(0))
    metrics = again.round()
    assert [e.seq for e in bodies(exchange)] == [0, 1]
    assert metrics["swarm"]["groups_sent"] == 2
    again.gate.close()
    third = member(tmp_path / "a", exchange, settings(0))  # no checkpoint yet: the round is played a third time
    assert third.round()["swarm"]["bytes_sent"] == metrics["swarm"]["bytes_sent"] > 0
    assert len(bodies(exchange)) == 2


def test_killed_before_the_pool_has_it_the_gate_lets_it_in_again(tmp_path, exchange):
    feed(exchange, 2)
    node = member(tmp_path / "a", exchange, settings(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "add", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            node.round()
    node.gate.close()
    again = member(tmp_path / "a", exchange, settings(1))
    swarm = again.round()["swarm"]
    assert (swarm["admitted"], swarm["dropped"]) == (2, {})
