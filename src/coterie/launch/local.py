"""Runs on this machine: a few worker processes, each playing one run after another, watched through the files they write."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.runs import RunFolder


@dataclass(frozen=True, slots=True)
class Failure:
    """A run that did not finish. `kind` is "user" for a mistake in what was given, "crash" for everything else."""

    folder: RunFolder
    error: str
    kind: str


def gpu_sets(count: int, visible: str | None, each: int = 1) -> list[str]:
    """This machine's GPUs in sets of `each`, written as CUDA_VISIBLE_DEVICES takes them: "0", "1", … or "0,1", "2,3", …

    `count` is what torch can see and `visible` the variable as it is set now, whose names are kept. GPUs that do not fill a set are
    left out; fewer than `each` in all give one set of what there is.
    """
    names = visible.split(",")[:count] if visible else [str(i) for i in range(count)]
    whole = [",".join(names[i : i + each]) for i in range(0, len(names) - each + 1, each)]
    return whole or ([",".join(names)] if names else [])


def default_workers(runs: int, gpus: int) -> int:
    """One process a core on a CPU (small models gain nothing from more threads), one process a GPU (or set of them)."""
    return max(1, min(runs, gpus or os.cpu_count() or 1))


def play_runs(
    folders: Sequence[RunFolder], workers: int, threads: int, watch: Callable[[], None], gpus: Sequence[str] = ()
) -> list[Failure]:
    """Play all folders in `workers` processes of `threads` threads; `watch` is called a few times a second meanwhile.

    Each worker sees one of `gpus` (see `gpu_sets`), in turn; without any, what this process sees. A worker that dies fails its run
    and is replaced for the next one. On KeyboardInterrupt the workers are stopped.
    """
    todo: queue.SimpleQueue[RunFolder] = queue.SimpleQueue()
    for folder in folders:
        todo.put(folder)
    failures: list[Failure] = []
    stopping = threading.Event()
    processes: set[subprocess.Popen] = set()

    def work(place: int) -> None:
        gpu = gpus[place % len(gpus)] if gpus else None
        process = None
        try:
            while not stopping.is_set():
                try:
                    folder = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    if process is None or process.poll() is not None:
                        process = _start(threads, gpu)
                        processes.add(process)
                    failure = _play(process, folder)
                except Exception as error:  # whatever happens to one run, the others are played and this one is reported
                    failure = Failure(folder, f"{type(error).__name__}: {error}", "crash")
                if failure and not stopping.is_set():
                    failures.append(failure)
        finally:
            if process is not None and process.stdin:
                process.stdin.close()

    crew = [threading.Thread(target=work, args=(place,), daemon=True) for place in range(min(workers, len(folders)))]
    for thread in crew:
        thread.start()
    try:
        while any(thread.is_alive() for thread in crew):
            watch()
            time.sleep(0.5)
        watch()
    except BaseException:
        stopping.set()
        for process in processes:
            process.terminate()
        raise
    finally:
        for process in processes:
            process.wait()
    return failures


def _start(threads: int, gpu: str | None) -> subprocess.Popen:
    environment = {
        **os.environ,
        "COTERIE_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
        "TOKENIZERS_PARALLELISM": "false",
    }
    if gpu is not None:
        environment["CUDA_VISIBLE_DEVICES"] = gpu
    # -P: a file of the user's that is named like a library must not be imported in its place
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "coterie.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def _play(process: subprocess.Popen, folder: RunFolder) -> Failure | None:
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write(f"{folder.path}\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it has ended; its answers, if any, can still be read
    for line in process.stdout:
        try:
            outcome = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(outcome, dict) and outcome.get("folder") == str(folder.path):
            return Failure(folder, outcome["error"], outcome["kind"]) if outcome["error"] else None
    code = process.wait()
    return Failure(
        folder, f"its worker was killed by signal {-code}" if code < 0 else f"its worker ended with exit code {code}", "crash"
    )
