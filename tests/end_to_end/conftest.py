"""Runs small enough for a fast test: the pocket model, two tasks a step, few held-out tasks."""

from pathlib import Path

import pytest

from coterie.experiment import plan
from coterie.recipe import load_recipe

SMALL = (
    "tasks.held_out=4",
    "tasks.train=64",
    "train.tasks_per_step=2",
    "protocol.message_tokens=24",
    "protocol.final_tokens=32",
)


@pytest.fixture
def small_plan():
    """A function from an output folder (and further settings) to a small experiment of talk-to-solve."""

    def make(out: Path, *sets: str, arms=("chat",), seeds=(17,), steps=4):
        return plan(
            load_recipe("talk-to-solve"), profile="pocket", arms=arms, seeds=seeds, steps=steps, sets=(*SMALL, *sets), out=out
        )

    return make
