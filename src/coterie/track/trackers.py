"""The trackers that coterie knows. Each package is an extra and is imported when it is asked for, not before."""

import importlib
from collections.abc import Callable
from typing import Any

from coterie.track.base import Numbers, Open, Series, Tracker
from coterie.types import CoterieError


class TensorBoard:
    """Event files in the run's folder, `tensorboard/`: `tensorboard --logdir runs`."""

    def __init__(self, writer: Any):
        self._writer = writer

    def log(self, step: int, numbers: Numbers) -> None:
        for key, value in numbers.items():
            self._writer.add_scalar(key.replace(".", "/"), value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Logged:
    """For packages whose runs have `log(numbers, step)` and `finish()`: trackio and wandb."""

    def __init__(self, run: Any):
        self._run = run

    def log(self, step: int, numbers: Numbers) -> None:
        self._run.log(dict(numbers), step=step)

    def close(self) -> None:
        self._run.finish()


def _tensorboard() -> Open:
    _need("tensorboard", "tensorboard")
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter
    return lambda series: TensorBoard(writer(str(series.folder / "tensorboard")))


def _trackio() -> Open:
    package = _need("trackio", "trackio")

    def open(series: Series) -> Tracker:
        run = package.init(
            project=series.project,
            name=f"{series.name}-{series.id}",
            group=series.group,
            config=dict(series.config),
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return Logged(run)

    return open


def _wandb() -> Open:
    package = _need("wandb", "wandb")

    def open(series: Series) -> Tracker:
        run = package.init(
            project=series.project,
            group=series.group,
            name=series.name,
            id=series.id,
            dir=str(series.folder),
            config=dict(series.config),
            resume="allow",
            reinit="create_new",
            settings=package.Settings(silent=True, x_disable_stats=True),
        )
        return Logged(run)

    return open


TRACKERS: dict[str, Callable[[], Open]] = {"tensorboard": _tensorboard, "trackio": _trackio, "wandb": _wandb}


def opener(name: str) -> Open:
    """What opens a tracker by name. Raises CoterieError for a name that is none, and where its package is not installed."""
    if name not in TRACKERS:
        raise CoterieError(f"--track {name}: there is no such tracker; give one of {', '.join(TRACKERS)}")
    return TRACKERS[name]()


def _need(name: str, package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError:
        raise CoterieError(f"--track {name}: the package {package} is not installed; run `pip install {package}`") from None
