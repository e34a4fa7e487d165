"""Nodes of one run as processes of this machine, each at its own pace, over one SQLite file.

`python -m coterie.swarm.member RUN/nodes/node-1 RUN/exchange.sqlite` plays and scores one node. `play_apart` starts one process a
node, each with a GPU in turn where there are any, and waits for them.
"""

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

from coterie.assemble import assemble
from coterie.config.swarm import SwarmConfig
from coterie.kinds import load_entry_points
from coterie.loading import be_quiet
from coterie.runs import RunFolder, end_with, machine, versions
from coterie.swarm.ensemble import log_rounds, score_member
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.node import open_node
from coterie.types import CoterieError

MISTAKE = 2
"""Exit code of a node that found a mistake in what it was given."""


def play_apart(folder: RunFolder, settings: SwarmConfig, members: Sequence[RunFolder]) -> None:
    """Play all nodes to the end. A node that dies leaves the others alone; the run then fails and can be resumed."""
    cards = [card for card in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if card]
    exchange = folder.path / "exchange.sqlite"
    processes: list[subprocess.Popen[bytes]] = []
    folder.set_state(status="training")
    try:
        for i, member in enumerate(members):
            processes.append(_start(member, exchange, cards[i % len(cards)] if cards else None))
        while any(process.poll() is None for process in processes):
            log_rounds(folder, members)
            time.sleep(1)
        log_rounds(folder, members)
    except BaseException:
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.wait()
    broken = {member.name: process.returncode for member, process in zip(members, processes, strict=True) if process.returncode}
    if broken:
        told = ", ".join(f"{name} (exit code {code}; its last words are in {name}/output.txt)" for name, code in broken.items())
        kind = CoterieError if set(broken.values()) == {MISTAKE} else RuntimeError
        raise kind(f"{folder.path / 'nodes'}: {told} did not finish; go on with --resume")


def _start(member: RunFolder, exchange: Path, card: str | None) -> subprocess.Popen[bytes]:
    environment = dict(os.environ) if card is None else {**os.environ, "CUDA_VISIBLE_DEVICES": card}
    with open(member.path / "output.txt", "ab") as output:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "coterie.swarm.member", str(member.path), str(exchange)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
        )


def play_member(member: RunFolder, exchange_file: Path) -> None:
    """Play and score one node. A finished one is left as it is."""
    if member.finished:
        return
    config = member.config()
    assert config.swarm is not None
    with member.locked():
        member.set_state(status="loading", versions=versions(), machine=machine(), pid=os.getpid())
        stage = assemble(config)
        exchange = SqliteExchange(exchange_file)
        node = open_node(stage, config.swarm, member, exchange)
        try:
            member.set_state(status="training")
            node.run()
            member.set_state(status="evaluating")
            score_member(stage, member)
        finally:
            node.gate.close()
            exchange.close()


def main() -> None:
    import torch

    be_quiet()
    warnings.simplefilter("ignore")  # of the libraries
    torch.set_num_threads(int(os.environ.get("COTERIE_THREADS", "1")))
    threading.Thread(target=end_with, args=(os.getppid(),), daemon=True).start()
    load_entry_points()
    try:
        play_member(RunFolder(Path(sys.argv[1])), Path(sys.argv[2]))
    except CoterieError as error:
        print(f"coterie: {error}", file=sys.stderr)
        sys.exit(MISTAKE)


if __name__ == "__main__":
    main()
