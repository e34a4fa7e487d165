"""Run folders: one arm with one seed, on disk.

config.toml      the resolved configuration; a folder belongs to it for good
run.json         status, versions, machine, minutes
metrics.jsonl    one line a step
episodes.jsonl   sampled conversations of training
checkpoints/     step-000010/, …: adapter, optimiser, schedule
result.json      held-out results; its presence is what "finished" means
"""

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tomli_w

from coterie import __version__
from coterie.config import RunConfig
from coterie.config_errors import differences
from coterie.kinds import load_plugins, run_config
from coterie.records import disk_errors, read_json, read_lines, write_json, write_text
from coterie.types import CoterieError


class RunFolder:
    def __init__(self, path: Path):
        self.path = path
        self.config_file = path / "config.toml"
        self.state_file = path / "run.json"
        self.metrics_file = path / "metrics.jsonl"
        self.episodes_file = path / "episodes.jsonl"
        self.checkpoints = path / "checkpoints"
        self.result_file = path / "result.json"

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def finished(self) -> bool:
        return self.result_file.is_file()

    def refuse_swarm(self) -> None:
        """Where one trained copy is needed: a run that is a swarm has several, each in a folder of its own."""
        if (self.path / "nodes").is_dir():
            raise CoterieError(f"{self.path}: is a swarm of several copies; give one of them, for example {self.path}/nodes/node-1")

    @property
    def started(self) -> bool:
        return self.config_file.is_file()

    def config(self) -> RunConfig:
        try:
            data = tomllib.loads(self.config_file.read_text(encoding="utf-8"))
            load_plugins(data.get("plugins", ()))
            return run_config().model_validate(data)
        except OSError:
            raise CoterieError(
                f"{self.path}: not a run folder (it has no config.toml); give one, for example runs/talk-to-solve/chat-seed17"
            ) from None
        except ValueError as error:
            raise CoterieError(
                f"{self.config_file}: not a configuration of this version of coterie ({str(error).splitlines()[0]})"
            ) from None

    def check(self, config: RunConfig, resume: bool) -> None:
        """Make sure that this configuration may be played here; writes nothing.

        A finished run is left alone, so it is always welcome. An unfinished one is only gone on with when `resume` says so.
        """
        if not self.started:
            if self.path.exists() and (
                not self.path.is_dir() or any(not p.name.startswith(".config.toml.") for p in self.path.iterdir())
            ):
                raise CoterieError(f"{self.path} is not empty and holds no run; choose another folder with --out")
            return
        differing = differences(self.config().model_dump(mode="json"), config.model_dump(mode="json"))
        if differing:
            raise CoterieError(
                f"{self.path} holds a run of another configuration (other {', '.join(differing[:4])}); "
                "choose another folder with --out"
            )
        if not self.finished and not resume and self.state_file.exists():
            steps = len(read_lines(self.metrics_file))
            raise CoterieError(
                f"{self.path} holds an unfinished run (step {steps} of {config.train.steps}); go on with --resume, "
                "or choose another folder with --out"
            )

    def create(self, config: RunConfig) -> None:
        """Write the configuration into a new folder; an old one keeps what it has."""
        if not self.started:
            write_text(self.config_file, tomli_w.dumps(config.model_dump(mode="json", exclude_none=True)))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process plays a run; the lock ends with the process, however it ends."""
        with disk_errors(self.path):
            file = open(self.path / ".lock", "w")  # noqa: SIM115 (closed below, outside of disk_errors)
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CoterieError(f"{self.path} is being played by another process; wait for it or stop it") from None
            yield

    def set_state(self, **changes: Any) -> None:
        state = read_json(self.state_file) if self.state_file.is_file() else {}
        write_json(self.state_file, {**state, **changes})


def end_with(launcher: int) -> None:
    """End this process when its launcher is gone, however that ended; a run loses nothing by being killed."""
    while os.getppid() == launcher:
        time.sleep(0.5)
    os._exit(1)


def versions() -> dict[str, str]:
    """What a result depends on beside its configuration."""
    names = ("torch", "transformers", "peft", "tokenizers", "numpy", "scipy")
    found = {name: importlib.metadata.version(name) for name in names}
    return {"coterie": __version__, "python": platform.python_version(), **found}


def machine() -> dict[str, Any]:
    import torch

    card = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "card": card,
    }
