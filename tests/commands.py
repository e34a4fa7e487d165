"""The command line, called inside the test's process."""

import sys
from collections.abc import Callable, Sequence

import pytest

from coterie import builtin, kinds, running, smoke  # noqa: F401 (builtin registers)
from coterie.cli import main
from coterie.launch.local import Failure
from coterie.runs import RunFolder
from coterie.types import CoterieError
from coterie.worker import play_run

Call = Callable[..., tuple[int, str]]


@pytest.fixture
def cli(monkeypatch, capsys) -> Call:
    """A function from words to the exit code and all that was printed, in one line of text."""

    def call(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, " ".join((out + err).split())

    return call


@pytest.fixture
def here(monkeypatch):
    """Runs are played in this process, not in workers, each of which takes seconds to import its libraries. What is played is the
    folder on disk, as in a worker."""

    def play(folders: Sequence[RunFolder], *_: object) -> list[Failure]:
        failures = []
        for folder in folders:
            try:
                play_run(folder)
            except CoterieError as error:
                failures.append(Failure(folder, str(error), "user"))
        return failures

    monkeypatch.setattr(running, "play_runs", play)


@pytest.fixture
def fresh_kinds(monkeypatch):
    """What a test registers is forgotten after it."""
    for name in ("_kinds", "_plugins"):
        monkeypatch.setattr(kinds, name, dict(getattr(kinds, name)))
    kinds.run_config.cache.clear()
    yield
    kinds.run_config.cache.clear()


@pytest.fixture
def tiny(monkeypatch):
    """Smoke runs of one task a step."""
    monkeypatch.setitem(smoke.SIZES["train"], "tasks_per_step", 1)
    monkeypatch.setitem(smoke.SIZES["tasks"], "held_out", 2)
