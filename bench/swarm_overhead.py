# ruff: noqa: E402
"""What being a node costs over plain training, on one machine: `python bench/swarm_overhead.py`, about ten minutes of two cores.

Rounds of the pocket model (solo, 8 tasks x 8 episodes of `pocket_specialties`), a plain step and a node's round by turns in one
process, who comes first by turns too; ratios are of the two of a pair, so that a machine that others use slows down both.

- `alone`: J = 0 and share = "all". Both learn the same, to the bit (`same_weights`), so the ratio is the node's overhead.
- `fed`: J = 4, and between rounds the groups of 7 other nodes arrive, 8 of each, all of which the gate judges. The plain step
  learns from 8 own groups, the node from 4 own and 4 foreign ones.

A plain step is `train_step`; `over_logged` is over the step with the two logs that `train` writes after each. Neither saves
checkpoints. `parts_ms` are median milliseconds a round; `over_step_cpu` is a ratio of processor time, which waits
for no disk and no other process. `memory` publishes and admits 10,000 groups without learning.
"""

import argparse
import gc
import itertools
import os
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "src")]

import torch
from common import facts, write

from coterie.assemble import Stage, assemble
from coterie.config import RunConfig
from coterie.config.swarm import SwarmConfig
from coterie.learn.learner import Learner
from coterie.records import append_lines
from coterie.runs import RunFolder
from coterie.swarm.envelope import encode
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.gate import Gate, Limits
from coterie.swarm.identity import Identity, load_identity
from coterie.swarm.intake import Intake
from coterie.swarm.node import Node, open_node
from coterie.swarm.pool import Pool
from coterie.swarm.settings import regenerator
from coterie.swarm.taskrefs import reference
from coterie.swarm.trouble import Trouble
from coterie.swarm.words import Envelope, Rollouts
from coterie.tasks.pocket_specialties import specialty_tasks
from coterie.train import train_step
from coterie.types import Task

SWARM, OTHERS, GROUPS = "bench", 7, 8
PARTS = {"_share": "publish", "_draw": "draw", "_group": "encode again", "_with_logprobs": "log-probabilities", "_end": "files"}
Arrival = tuple[str, int, float, bytes]


def stage() -> Stage:
    table = {
        "recipe": "bench",
        "profile": "pocket",
        "arm": "bench",
        "seed": 1,
        "tasks": {"kind": "pocket_specialties", "train": 512, "held_out": 2},
        "protocol": {"kind": "solo"},
        "draw": {"kind": "fixed", "episodes": 8},
        "model": {"path": "pocket", "device": "cpu"},
        "train": {"steps": 1000, "tasks_per_step": 8, "checkpoint_every": 1000},
    }
    return assemble(RunConfig.model_validate(table))


def answers(task: Task, number: int, size: int) -> tuple[str, ...]:
    """Eight texts that are like the pocket model's, half of them right, `size` characters each or a little more; no two alike."""
    texts = []
    for place in range(8):
        said, a = "", 8 * number + place
        while len(said) < size:
            said += f"{a}+{len(said)}={a + len(said)}. "
        texts.append(f"{said}\\boxed{{{task.answer if place % 2 else 1000 + place}}}")
    return tuple(texts)


def envelopes(keys: Sequence[Identity], count: int, size: int, clock: Callable[[], float]) -> Iterator[Arrival]:
    """`count` groups of others, as an exchange's `add` takes them, the keys by turns; each group of a task of its own."""
    tasks = specialty_tasks(min(count, 4096), 1, seed=99).train
    for number in range(count):
        task, key, seq = tasks[number % len(tasks)], keys[number % len(keys)], number // len(keys)
        ref = reference(task)
        assert ref is not None
        rollouts = Rollouts(ref, task.question, answers(task, number, size), seq, "other@0")
        body = encode(Envelope(SWARM, key.node, seq, clock(), rollouts), key)
        yield key.node, seq, clock(), body


def timed(owner: Any, name: str, spent: dict[str, float], part: str) -> None:
    """Adds to `spent[part]` what the method takes from now on."""
    method = getattr(owner, name)

    def wrapped(*args: Any, **more: Any) -> Any:
        start = time.perf_counter()
        try:
            return method(*args, **more)
        finally:
            spent[part] += time.perf_counter() - start

    setattr(owner, name, wrapped)


class Pair:
    """A plain learner and a node that begin alike."""

    def __init__(self, home: Path, groups: int):
        self.plain, self.home, self.step = stage(), home, 0
        self.learner = Learner(self.plain.model, self.plain.config.train, seed=1)
        self.plain.engine.refresh(0)
        self.exchange = SqliteExchange(home / "exchange.sqlite")
        settings = SwarmConfig.model_validate({"name": SWARM, "share": "all", "external": {"kind": "fixed", "groups": groups}})
        self.node: Node = open_node(stage(), settings, RunFolder(home / "node"), self.exchange)
        self.spent: dict[str, float] = defaultdict(float)
        for name, part in PARTS.items():
            timed(self.node, name, self.spent, part)
        timed(self.node.gate, "admit", self.spent, "gate")
        (home / "plain").mkdir()

    def plain_step(self) -> tuple[float, float, float]:
        """Seconds of the step, with its logs, and of the processor."""
        start, used = time.perf_counter(), time.process_time()
        metrics, samples = train_step(self.plain, self.learner, self.step)
        stepped, used = time.perf_counter() - start, time.process_time() - used
        append_lines(self.home / "plain" / "episodes.jsonl", samples)
        append_lines(self.home / "plain" / "metrics.jsonl", [metrics])
        return stepped, time.perf_counter() - start, used

    def node_round(self) -> tuple[float, float, dict[str, Any]]:
        start, used = time.perf_counter(), time.process_time()
        metrics = self.node.round()
        return time.perf_counter() - start, time.process_time() - used, metrics

    def both(self) -> dict[str, Any]:
        self.spent.clear()
        if self.step % 2:
            (seconds, used, metrics), (step, logged, plain_used) = self.node_round(), self.plain_step()
        else:
            (step, logged, plain_used), (seconds, used, metrics) = self.plain_step(), self.node_round()
        self.step += 1
        parts = dict(self.spent)
        parts["draw"] = parts.get("draw", 0.0) - parts.get("gate", 0.0)
        times = {"step": step, "logged": logged, "round": seconds, "cpu_step": plain_used, "cpu_round": used}
        return {**times, "parts": parts, "swarm": metrics["swarm"]}

    @property
    def same_weights(self) -> bool:
        mine = self.node.learner.trainable
        return all(torch.equal(p, mine[name]) for name, p in self.learner.trainable.items())

    def close(self) -> None:
        self.node.gate.close()
        self.exchange.close()


def quartiles(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    low, middle, high = statistics.quantiles(values, n=4)
    return {"median": round(middle, digits), "q1": round(low, digits), "q3": round(high, digits)}


def overhead(home: Path, groups: int, pairs: int, warm: int, others: int) -> Iterator[dict[str, Any]]:
    """What was found after each pair from the second on. `others` nodes share 8 groups between two rounds; `groups` is J."""
    home.mkdir()
    pair = Pair(home, groups)
    keys = [load_identity(home / f"other-{n}.pem") for n in range(others)]
    coming = envelopes(keys, others * GROUPS * (pairs + warm), 24, time.time)
    found = []
    for number in range(warm + pairs):
        pair.exchange.add(list(itertools.islice(coming, others * GROUPS)), time.time(), local=False)
        one = pair.both()
        if number >= warm:
            found.append(one)
        if len(found) > 1:
            yield told(found) | {"same_weights": pair.same_weights}
    pair.close()


def told(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    swarm = [one["swarm"] for one in found]
    parts = [*PARTS.values(), "gate"]
    a_round = ("received", "admitted", "external", "groups_sent")
    return {
        "pairs": len(found),
        "step_s": quartiles([one["step"] for one in found]),
        "round_s": quartiles([one["round"] for one in found]),
        "cpu_step_s": quartiles([one["cpu_step"] for one in found]),
        "over_step": quartiles([one["round"] / one["step"] for one in found]),
        "over_logged": quartiles([one["round"] / one["logged"] for one in found]),
        "over_step_cpu": quartiles([one["cpu_round"] / one["cpu_step"] for one in found]),
        "parts_ms": {part: round(1000 * statistics.median(one["parts"].get(part, 0.0) for one in found), 2) for part in parts},
        "parts_over_step": quartiles([sum(one["parts"].values()) / one["step"] for one in found]),
        "a_round": {name: round(statistics.mean(one[name] for one in swarm), 2) for name in a_round},
        "dropped": dict(sum((Counter(one["dropped"]) for one in swarm), Counter())),
    }


def rss() -> int:
    """Bytes resident, by /proc/self/statm (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory(home: Path, groups: int = 10_000, a_round: int = 64, keep_bytes: int = 8_000_000, trace: bool = True) -> dict[str, Any]:
    """Groups of about 2 KB through exchange, gate and pool, `a_round` at a time: what the process holds and the files take, every
    tenth of the way. Half a second of the gate's clock passes for each, so that its quota lets all in."""
    home.mkdir(exist_ok=True)
    made, start = stage(), time.time()
    now = itertools.count()
    clock = [start]
    exchange = SqliteExchange(home / "exchange.sqlite", keep_bytes=keep_bytes)
    limits, regenerate = Limits(texts=20_000, max_age=1e9), regenerator(made)
    gate = Gate(SWARM, "0" * 64, regenerate, made.hall.grader, home / "gate.sqlite", None, limits, lambda: clock[0])
    intake = Intake(exchange, gate, True, 1e9, lambda: clock[0], Trouble(), lambda foreign: foreign)
    pool = Pool(home / "pool.jsonl", 16, 512, 1)
    keys = [load_identity(home / "other.pem")]
    if trace:
        tracemalloc.start()
    coming = envelopes(keys, groups, 180, lambda: clock[0])
    held, admitted, bytes_in = [], 0, 0
    while part := list(itertools.islice(coming, a_round)):
        round = next(now)
        for node, seq, _, body in part:
            clock[0] += 0.5
            bytes_in += len(body)
            exchange.publish(node, seq, body)
        harvest = intake.harvest(round, pool.cursor)
        pool.add(harvest)
        admitted += harvest.admitted
        assert pool.open(round, {})
        pool.forget(round)
        if round * a_round // (groups // 20) != (round + 1) * a_round // (groups // 20):
            gc.collect()
            traced = tracemalloc.get_traced_memory()[0] if trace else 0
            files = {
                path.name: path.stat().st_size for path in home.glob("*") if path.suffix in (".sqlite", ".sqlite-wal", ".jsonl")
            }
            held.append({"groups": (round + 1) * a_round, "rss": rss(), "traced": traced, "files": files})
    if trace:
        tracemalloc.stop()
    gate.close()
    exchange.close()
    return {"groups": groups, "admitted": admitted, "bytes": bytes_in, "keep_bytes": keep_bytes, "held": held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=str(Path(__file__).parent / "results" / "swarm-overhead.json"))
    parser.add_argument("--parts", nargs="*", choices=["alone", "fed", "memory"], default=["alone", "fed", "memory"])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--warm", type=int, default=3)
    parser.add_argument("--groups", type=int, default=10_000, help="of the memory part")
    parser.add_argument("--no-trace", action="store_true", help="the memory part without tracemalloc, which is three times as fast")
    options = parser.parse_args()
    torch.set_num_threads(1)  # several wait for each other where others use the machine
    result: dict[str, Any] = facts("cpu") | {"cores": os.cpu_count(), "threads": torch.get_num_threads()}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        for part, groups, others in (("alone", 0, 0), ("fed", 4, OTHERS)):
            if part in options.parts:
                for found in overhead(home / part, groups, options.pairs, options.warm, others):
                    result[part] = found | {"load": os.getloadavg()[0]}
                    write(options.out, result)  # after each pair: a run that is stopped leaves what it has found
        if "memory" in options.parts:
            result["memory"] = memory(home / "memory", options.groups, trace=not options.no_trace)
            write(options.out, result)


if __name__ == "__main__":
    main()
