"""Nodes of a swarm as processes of this machine, each with a GPU in turn where there are any. Nothing is started again: who ended,
and how, is said."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from coterie.swarm.serve import SUPERVISOR


def play_nodes(
    place: Path, nodes: Sequence[str], gpus: Sequence[str], say: Callable[[str], None], report: Callable[[str], None]
) -> Mapping[str, int]:
    """Play nodes of a swarm's folder until all have ended; exit codes by name. What they print comes to `say` line by line.

    SIGINT and SIGTERM are handed on, once each time, so nodes end after their round; after the second one at once. When this
    process dies, they end after their round too.
    """
    processes: dict[str, subprocess.Popen[str]] = {}
    asked: list[int] = []

    def hand_on(number: int, _: object) -> None:
        asked.append(number)
        for process in processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGINT)

    old = {number: signal.signal(number, hand_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        for i, name in enumerate(nodes):
            if asked:
                break
            processes[name] = _start(place, name, gpus[i % len(gpus)] if gpus else None)
        readers = [threading.Thread(target=_read, args=(name, of.stdout, say), daemon=True) for name, of in processes.items()]
        for reader in readers:
            reader.start()
        codes = {}
        for name, process in processes.items():
            codes[name] = process.wait()
        for reader in readers:
            reader.join(5)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
    for name, code in codes.items():
        if code < 0:
            report(f"{name} was killed by signal {-code}; go on with `coterie swarm join {place} --node {name}`")
        elif code and not asked:
            report(f"{name} ended with exit code {code}; its last words are above")
    return codes


def _start(place: Path, name: str, gpu: str | None) -> subprocess.Popen[str]:
    environment = {**os.environ, SUPERVISOR: str(os.getpid()), "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    if gpu is None:
        environment |= {"COTERIE_THREADS": "1", "OMP_NUM_THREADS": "1"}
    else:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "coterie", "swarm", "join", str(place), "--node", name],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,  # Ctrl-C in the terminal comes to this process alone, and is handed on once
    )


def _read(name: str, lines: IO[str] | None, say: Callable[[str], None]) -> None:
    for line in lines or ():
        say(f"{name}: {line.rstrip()}")
