"""What every task source returns, and the pieces that they share.

Loading errors are `CoterieError`: one sentence that names the file (and line) or the key, and the remedy.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from coterie.types import CoterieError, Task

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TaskSet:
    """The tasks of a run. `skipped` counts the problems that were read but that the split rule rejected on the way."""

    train: tuple[Task, ...]
    held_out: tuple[Task, ...]
    skipped: int = 0


def shuffled(items: Iterable[Item], seed: int) -> list[Item]:
    """`items` in the order that Hugging Face `Dataset.shuffle(seed=seed)` gives them.

    Source: datasets/arrow_dataset.py, `np.random.default_rng(seed).permutation(len(self))`. The tests check the outcome against
    the published task ids.
    """
    pool = list(items)
    return [pool[i] for i in np.random.default_rng(seed).permutation(len(pool))]


def first(tasks: list[Task], wanted: int | None, key: str, source: str) -> tuple[Task, ...]:
    """The first `wanted` of `tasks`, or all of them when it is None.

    Raises:
        CoterieError: there are fewer, or `wanted` is negative; `key` is the setting to change, `source` where the tasks come from.
    """
    if wanted is None:
        wanted = len(tasks)
    if wanted < 0:
        raise CoterieError(f"tasks.{key} is {wanted}; give a number of tasks that is 0 or more")
    if len(tasks) < wanted:
        raise CoterieError(
            f"{source} has {len(tasks):,} usable tasks but tasks.{key} asks for {wanted:,}; ask for at most {len(tasks)}"
        )
    return tuple(tasks[:wanted])
