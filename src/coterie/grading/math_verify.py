r"""math_verify: the grader of the published experiments, Hugging Face's Math-Verify, in processes of its own.

Math-Verify guards itself with SIGALRM, which works on a main thread only, and symbolic algebra can hang or eat the memory. Here
each answer is judged in a worker process with a deadline; a worker that misses it or dies is replaced, and only its answer
becomes a `GradingError`. The caller's signals are left alone.

The gold answer is parsed as `$gold$`, the message with Math-Verify's defaults, as published. A box is not required: without one
the last number or expression counts. With `boxed_only` only the contents of the last box are judged.
Source: github.com/huggingface/Math-Verify; pitfalls: verl #3407, Math-Verify #55, TRL #2737.
"""

import contextlib
import importlib.util
import json
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from coterie.grading.base import Grader, GradingError, boxed
from coterie.types import CoterieError

WORKER = Path(__file__).with_name("math_worker.py")


class MathVerify(Grader):
    """`timeout` is the time that one answer may take, in seconds; `workers` the number of processes, started when first needed.

    Use as a context manager, or call `close`; what is left is closed when the grader is collected or Python exits.

    Raises:
        CoterieError: the extra is not installed.
    """

    def __init__(self, boxed_only: bool = False, timeout: float = 5.0, workers: int = 2, start_timeout: float = 120.0):
        if importlib.util.find_spec("math_verify") is None:
            raise CoterieError("the grader math_verify needs the package math-verify; install it with pip install 'coterie[math]'")
        self.boxed_only, self.timeout, self.workers, self.start_timeout = boxed_only, timeout, workers, start_timeout
        self._idle: queue.LifoQueue[_Worker | None] = queue.LifoQueue()
        for _ in range(workers):
            self._idle.put(None)
        self._pool = _Pool()
        self._finalizer = weakref.finalize(self, self._pool.close)

    def grade(self, answers: Sequence[tuple[str, str]]) -> list[float | GradingError]:
        if self._pool.closed:
            raise RuntimeError("this grader is closed")
        with ThreadPoolExecutor(max_workers=max(1, min(self.workers, len(answers)))) as threads:
            return list(threads.map(self._one, answers))

    def close(self) -> None:
        self._finalizer()

    def _one(self, answer: tuple[str, str]) -> float | GradingError:
        text, gold = answer
        if self.boxed_only:
            content = boxed(text)
            text = "" if content is None else f"\\boxed{{{content}}}"
        worker = self._idle.get()
        try:
            if worker is None or not worker.alive():
                worker = None
                worker = _Worker(WORKER, self._pool, self.start_timeout)
            reply = worker.ask({"text": text, "gold": gold, "seconds": self.timeout}, self.timeout)
        except _WorkerError as error:
            worker = None
            return GradingError(str(error))
        finally:
            self._idle.put(worker)
        return GradingError(reply["error"]) if "error" in reply else float(reply["score"])


class _WorkerError(Exception):
    """The worker is gone, and why."""


class _Pool:
    """The processes that are alive, so that they can be ended from any thread."""

    def __init__(self) -> None:
        self.closed = False
        self._processes: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()

    def start(self, file: Path) -> "subprocess.Popen[str]":
        with self._lock:
            if self.closed:
                raise _WorkerError("the grader was closed")
            # -P: the worker's own folder holds a math_verify.py, which must not hide the package
            process = subprocess.Popen(
                [sys.executable, "-P", str(file)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                encoding="utf-8",
                errors="backslashreplace",
            )
            self._processes.add(process)
        return process

    def end(self, process: "subprocess.Popen[str]") -> None:
        process.kill()
        process.wait()
        with self._lock:
            self._processes.discard(process)

    def close(self) -> None:
        with self._lock:
            self.closed = True
            left = list(self._processes)
        for process in left:
            self.end(process)


class _Worker:
    """One process. After a `_WorkerError` it has been ended and must be thrown away, so a late reply can reach nobody."""

    def __init__(self, file: Path, pool: _Pool, start_timeout: float):
        self._pool = pool
        self._process = pool.start(file)
        self._read(start_timeout, "did not start")

    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, job: dict[str, object], timeout: float) -> dict:
        return self._read(timeout, "gave no answer", job)

    def _read(self, timeout: float, what: str, job: dict[str, object] | None = None) -> dict:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = threading.Timer(timeout, end)
        timer.daemon = True
        timer.start()
        try:
            if job is not None:
                # A worker that died since `alive` breaks the pipe; reading then finds out how it died.
                with contextlib.suppress(OSError):
                    self._process.stdin.write(json.dumps(job) + "\n")
                    self._process.stdin.flush()
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if line.endswith("\n") and not late.is_set():
            return json.loads(line)
        self._pool.end(self._process)
        died = f"the math-verify worker died ({_how(self._process.returncode)})"
        raise _WorkerError(f"math-verify {what} within {timeout:g} s" if late.is_set() else died)


def _how(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
