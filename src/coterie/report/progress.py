"""What a user sees while runs go on: one bar a run, read from the files that the runs write."""

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from coterie.records import last_line, read_json
from coterie.runs import RunFolder
from coterie.types import CoterieError

_QUIET_SECONDS = 15.0
"""Without a terminal, a line is printed at most this often."""


class Watcher:
    """Call it a few times a second while `launch.play_runs` works. On a terminal it draws bars; elsewhere it prints lines."""

    def __init__(self, console: Console, runs: Sequence[tuple[RunFolder, int]]):
        """`runs`: each folder with its number of training steps."""
        self._console, self._runs = console, list(runs)
        self._live = console.is_terminal
        self._seen: dict[str, tuple[int, str]] = {}
        self._said = 0.0
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(compact=True),
            console=console,
        )
        self._bars = {
            folder.name: self._progress.add_task(folder.name, total=max(steps, 1), note="", start=False)
            for folder, steps in self._runs
        }

    def __enter__(self) -> "Watcher":
        if self._live:
            self._progress.start()
        return self

    def __exit__(self, *exception: Any) -> None:
        if self._live:
            self._progress.stop()

    def __call__(self) -> None:
        for folder, steps in self._runs:
            done, note = _state(folder, steps)
            if self._seen.get(folder.name) == (done, note):
                continue
            if self._live and note:
                bar = self._bars[folder.name]
                self._progress.start_task(bar)
                self._progress.update(bar, completed=done, note=note)
            self._seen[folder.name] = (done, note)
        if not self._live and time.monotonic() - self._said > _QUIET_SECONDS:
            self._said = time.monotonic()
            self._print_line()

    def _print_line(self) -> None:
        finished = sum(folder.finished for folder, _ in self._runs)
        busy = [f"{name} {done} ({note})" for name, (done, note) in self._seen.items() if note and note != "finished"]
        self._console.print(
            f"{finished} of {len(self._runs)} runs finished; {'; '.join(busy) or 'starting'}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


def _state(folder: RunFolder, steps: int) -> tuple[int, str]:
    if folder.finished:
        return max(steps, 1), "finished"
    try:
        status = read_json(folder.state_file).get("status", "") if folder.state_file.is_file() else ""
    except CoterieError:
        return 0, ""
    metrics = last_line(folder.metrics_file)
    if metrics is None or status in ("evaluating", "failed"):
        return (metrics["step"] if metrics else 0), status
    reward = "–" if metrics["reward"] is None else f"{metrics['reward']:.2f}"
    return metrics["step"], f"reward {reward}  {metrics['time']['tokens_per_second']:,.0f} tokens/s"
