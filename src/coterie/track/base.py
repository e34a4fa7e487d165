"""What a tracker is: somewhere a run's metrics go beside its own files, which hold everything in any case."""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

Numbers = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One run as a tracker sees it."""

    project: str
    """The recipe."""
    group: str
    """The arm."""
    name: str
    """The name of the run's folder, for example "chat-seed17"."""
    id: str
    """The same each time this run is tracked, so that a tracker can go on with it."""
    folder: Path
    """The run's own folder."""
    config: Mapping[str, Any] = field(default_factory=dict)


class Tracker(Interface):
    """One run being tracked. Any method may raise; `follow` sees to it that no run notices."""

    def log(self, step: int, numbers: Numbers) -> None: ...

    def close(self) -> None: ...


Open = Callable[[Series], Tracker]


def numbers_in(record: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers of a nested record by dotted key; text, lists and what is missing are left out."""
    found: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            found |= numbers_in(value, f"{prefix}{key}.")
        elif isinstance(value, int | float):  # bool is one too
            with suppress(OverflowError):  # of an integer that no float can hold
                if math.isfinite(value):
                    found[f"{prefix}{key}"] = float(value)
    return found
