"""Sends the metrics of runs to trackers, from the files that the runs write and from outside of their processes.

So nothing that a tracker does can stop or slow a run: it may be missing, hang, raise or lose its network. What was sent is written
down beside the run, and each step is sent once, also when the run or the follower was killed and went on. (A step that was played
again after a kill has the same numbers.)
"""

import hashlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console

from coterie.records import read_json, read_lines, write_json
from coterie.runs import RunFolder
from coterie.track.base import Open, Series, Tracker, numbers_in
from coterie.types import CoterieError

EVERY = 2.0
"""Seconds between looks at the files."""
SENT = "tracked.json"
"""In the run's folder: by tracker, the last step that was sent, and whether the held-out score was."""


class Follower:
    """`trackers` by name. `say` gets a sentence when one of them fails for a run; it is then left alone for that run."""

    def __init__(self, folders: Sequence[RunFolder], trackers: Mapping[str, Open], say: Callable[[str], None]):
        self._folders, self._trackers, self._say = list(folders), dict(trackers), say
        self._open: dict[tuple[str, str], Tracker] = {}
        self._failed: set[tuple[str, str]] = set()
        self._read: dict[str, int] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True, name="tracking")

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float = 30.0) -> None:
        """Send what is left, for so long at most: a tracker that hangs must not keep the program."""
        self._stop.set()
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._say(f"tracking did not end within {seconds:g} s and was left; the runs' own files hold everything")

    def finish(self) -> int:
        """Send all that there is, however long it takes. Returns how many runs a tracker failed for."""
        self.look()
        for key, tracker in list(self._open.items()):
            self._guard(key, tracker.close)
        self._open.clear()
        return len({run for _, run in self._failed})

    def _follow(self) -> None:
        while not self._stop.wait(EVERY):
            self.look()
        self.finish()

    def look(self) -> None:
        """Send what the files have that was not sent yet."""
        for folder in self._folders:
            if self._trackers and folder.started and self._changed(folder):
                for name in self._trackers:
                    if (name, folder.name) not in self._failed:
                        self._guard((name, folder.name), lambda name=name, folder=folder: self._send(name, folder))

    def _changed(self, folder: RunFolder) -> bool:
        size = sum(file.stat().st_size for file in (folder.metrics_file, folder.result_file) if file.is_file())
        before = self._read.get(folder.name)
        self._read[folder.name] = size
        return bool(size) and size != before

    def _send(self, name: str, folder: RunFolder) -> None:
        sent = _sent(folder).get(name, {"step": 0, "score": False})
        new = [line for line in read_lines(folder.metrics_file) if line["step"] > sent["step"]]
        scored = folder.finished and not sent["score"]
        if not new and not scored:
            return
        tracker = self._open.get((name, folder.name))
        if tracker is None:
            tracker = self._open[name, folder.name] = self._trackers[name](series_of(folder))
        for line in new:
            tracker.log(line["step"], numbers_in({key: value for key, value in line.items() if key != "step"}))
        step = new[-1]["step"] if new else sent["step"]
        if scored:  # at a step of its own: wandb takes nothing for a step that it has left behind
            tracker.log(step + 1, numbers_in({"held_out": _outcome(read_json(folder.result_file))}))
        write_json(folder.path / SENT, {**_sent(folder), name: {"step": step, "score": sent["score"] or scored}})
        if scored:
            del self._open[name, folder.name]
            tracker.close()

    def _guard(self, key: tuple[str, str], work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:  # whatever a tracker raises, it is no reason to stop
            self._failed.add(key)
            name, run = key
            self._say(
                f"{run}: {name} failed and is left out ({type(error).__name__}: {str(error)[:200]}); metrics.jsonl has it all"
            )


@contextmanager
def followed(folders: Sequence[RunFolder], trackers: Mapping[str, Open], console: Console) -> Iterator[None]:
    """Send the metrics of these runs to these trackers while the block runs, and what is left at its end."""
    if not trackers:
        yield
        return
    follower = Follower(folders, trackers, lambda line: console.print(f"coterie: {line}", markup=False, soft_wrap=True))
    follower.start()
    try:
        yield
    finally:
        follower.stop()


def series_of(folder: RunFolder) -> Series:
    config = folder.config()
    digest = hashlib.sha256(f"{folder.path.resolve()}\0{folder.config_file.read_text(encoding='utf-8')}".encode()).hexdigest()
    return Series(config.recipe, config.arm, folder.name, digest[:12], folder.path, config.model_dump(mode="json"))


def _outcome(result: Mapping[str, Any]) -> dict[str, Any]:
    """Of a record, what is one number for the run."""
    scores = {cast: of["score"] for cast, of in result.get("cross_play", {}).items()}
    return {**{key: result.get(key) for key in ("score", "measures", "swarm")}, "cross_play": scores}


def _sent(folder: RunFolder) -> dict[str, Any]:
    try:
        return read_json(folder.path / SENT) if (folder.path / SENT).is_file() else {}
    except CoterieError:  # torn or edited: what was sent is sent again
        return {}
