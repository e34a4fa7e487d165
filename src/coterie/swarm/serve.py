"""One node, played in the foreground: from its folder to rounds, until its last one or until somebody asks it to end.

It starts alone and waits for nothing: an exchange that nobody answers is the same to it as an empty one. It ends after the round
that it is in, with a checkpoint, when SIGTERM or Ctrl-C comes, when a file `leave` lies in its folder, or when the process that
started it is gone. Killed in any other way it goes on from its last checkpoint.
"""

import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.assemble import assemble
from coterie.config import RunConfig
from coterie.config.exchange import FolderExchangeConfig, MembershipConfig, SqliteExchangeConfig
from coterie.config.learn import BUILT_IN
from coterie.config.swarm import SwarmConfig
from coterie.loading import be_quiet
from coterie.records import read_json, write_json
from coterie.runs import machine, versions
from coterie.swarm.ensemble import score_member
from coterie.swarm.envelope import MAX_BYTES, genuine
from coterie.swarm.exchange.base import Exchange
from coterie.swarm.exchange.folder import FolderExchange
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.exchange.zenoh import ZenohExchange
from coterie.swarm.node import Node, open_node
from coterie.swarm.place import NodeFolder, SwarmFolder
from coterie.swarm.wanted import swarm_of
from coterie.swarm.words import NodeId

Say = Callable[[str], None]

KEEP_SECONDS = 6 * 3600.0
SUPERVISOR = "COTERIE_SUPERVISOR"
"""The process id of who started this node, in its environment: a node must not go on unseen when that process is gone."""


def open_exchange(membership: MembershipConfig, place: Path, store: Path, node: NodeId, settings: SwarmConfig) -> Exchange:
    """`place` is the swarm's folder, `store` the node's own file. Bodies are bounded by what an envelope may be, so that nothing is
    kept or passed on that every gate drops."""
    keep = max(KEEP_SECONDS, settings.keep_seconds)
    about = membership.exchange
    if isinstance(about, SqliteExchangeConfig):
        return SqliteExchange(place / about.path, max_body=MAX_BYTES, keep_seconds=keep)
    own = SqliteExchange(store, max_body=MAX_BYTES, keep_seconds=keep)
    accept = accepts(membership.name, None if settings.allowed is None else frozenset({node, *settings.allowed}))
    if isinstance(about, FolderExchangeConfig):
        return FolderExchange(about.path, own, accept=accept)
    return ZenohExchange(
        membership.name,
        node,
        own,
        listen=about.listen,
        hubs=about.hubs,
        settings=about.settings,
        accept=accept,
        history_seconds=settings.keep_seconds,
    )


def accepts(swarm: str, allowed: frozenset[NodeId] | None) -> Callable[[NodeId, int, bytes], bool]:
    """Whether bytes from the network are an envelope of this swarm, signed by the node and with the number that they come under.
    Else anybody could take the place of a true one. What a closed swarm lets nobody learn from, it does not pass on either."""

    def accept(node: NodeId, seq: int, body: bytes) -> bool:
        return (allowed is None or node in allowed) and genuine(node, seq, body, swarm)

    return accept


def play_node(swarm: SwarmFolder, folder: NodeFolder, say: Say) -> str:
    """Play the node from wherever it is. Returns how it ended: "finished", "left" or "stopped".

    Raises CoterieError when another process plays it, and KeyboardInterrupt on a second Ctrl-C.
    """
    if folder.finished:
        say(f"{folder.name} has played all its rounds: {score_of(folder)}; to play on, join with another node")
        return "finished"
    with folder.held():
        folder.leave_file.unlink(missing_ok=True)  # meant for an earlier life
        config, membership = folder.config(), folder.membership()
        settings = settings_of(config, membership)
        _be_calm(config)
        folder.set_state(status="loading", versions=versions(), machine=machine(), pid=os.getpid())
        try:
            return _open_and_play(swarm, folder, config, membership, settings, say)
        except BaseException as error:
            folder.set_state(status="stopped" if isinstance(error, KeyboardInterrupt) else "failed")
            raise


def _open_and_play(
    swarm: SwarmFolder, folder: NodeFolder, config: RunConfig, membership: MembershipConfig, settings: SwarmConfig, say: Say
) -> str:
    stage = assemble(config)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", UserWarning)
        exchange = open_exchange(membership, swarm.path, folder.store_file, folder.id, settings)
    for one in found:
        say(f"note: {one.message}")
    try:
        node = open_node(stage, settings, folder, exchange)
        try:
            return _play(node, folder, say)
        finally:
            node.gate.close()
    finally:
        exchange.close()


def settings_of(config: RunConfig, membership: MembershipConfig) -> SwarmConfig:
    """The node's settings with its list of keys as it is now."""
    settings = swarm_of(config)
    return settings if membership.allowed is None else settings.model_copy(update={"allowed": membership.allowed})


def score_of(folder: NodeFolder) -> str:
    """In words, of a finished node."""
    result = read_json(folder.result_file)
    if result["score"] is None:
        return "no held-out answer could be graded"
    return f"score {result['score']:.3f} on {result['held_out']} held-out tasks"


def _play(node: Node, folder: NodeFolder, say: Say) -> str:
    folder.set_state(status="playing")
    write_json(folder.status_file, node.status())
    say(f"exchange: {node.status()['exchange']}")
    if node.state.round:
        say(f"going on after round {node.state.round}")
    with _asked_to_end(folder, say) as stop:
        while not node.finished and not stop():
            before = node.trouble.count
            metrics = node.round()
            say(round_line(metrics, node.stage.config.train.steps))
            if node.trouble.count > before:
                say(f"  the exchange failed, the round did not: {node.trouble.last}")
        node.run(lambda: True)  # plays nothing, and leaves a checkpoint
        asked = stop()
    if node.finished:
        folder.set_state(status="evaluating")
        say("last round played; scoring on held-out tasks")
        score_member(node.stage, folder)
        say(f"{score_of(folder)}; written to {folder.result_file}")
        return "finished"
    folder.leave_file.unlink(missing_ok=True)
    folder.set_state(status=asked)
    again = f"coterie swarm join {folder.path.parent.parent} --node {folder.name}"
    say(f"ended after round {node.state.round} with a checkpoint; go on with `{again}`")
    return asked


@contextmanager
def _asked_to_end(folder: NodeFolder, say: Say) -> Iterator[Callable[[], str]]:
    """Within it the first SIGINT or SIGTERM is only remembered; the function says why to end, "" for not at all."""
    came: list[int] = []
    launcher = os.environ.get(SUPERVISOR)

    def remember(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)
        say("ending after this round; once more to end at once")

    def why() -> str:
        if folder.leave_file.exists():
            return "left"
        return "stopped" if came or (launcher is not None and os.getppid() != int(launcher)) else ""

    old = {number: signal.signal(number, remember) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield why
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def round_line(metrics: Mapping[str, Any], rounds: int) -> str:
    """What a round was, in a line. Rewards in [0, 1]; "useful" are the groups let in whose rewards are not all equal."""
    of = metrics["swarm"]
    useful = "–" if of["useful_share"] is None else f"{of['useful_share']:.0%}"
    seconds = metrics["time"]["play"] + metrics["time"]["learn"]
    dropped = ", ".join(f"{reason} {count}" for reason, count in of["dropped"].items())
    reward = "–" if metrics["reward"] is None else f"{metrics['reward']:.3f}"
    return (
        f"round {metrics['step']:>{len(str(rounds))}}/{rounds}  reward {reward}  "
        f"{of['external']} of {of['external_wanted']} foreign groups  came in {of['admitted']}, useful {useful}, "
        f"dropped {f'({dropped})' if dropped else 0}  sent {size(of['bytes_sent'])}  {seconds:.1f} s"
    )


def size(count: int) -> str:
    """Bytes in words: 812 B, 20.4 kB, 3.1 MB."""
    if count < 1000:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"


def wait_until_ended(folder: NodeFolder, pause: float = 0.2) -> None:
    while folder.running:
        time.sleep(pause)


def _be_calm(config: RunConfig) -> None:
    """No progress bars; and the threads of a worker: for the tiny built-in model more cost more than they save."""
    import torch

    be_quiet()
    warnings.simplefilter("ignore", FutureWarning)
    threads = os.environ.get("COTERIE_THREADS") or ("1" if config.model.path in BUILT_IN else None)
    if threads:
        torch.set_num_threads(int(threads))
