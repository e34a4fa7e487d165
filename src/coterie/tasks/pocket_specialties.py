"""Pocket problems one at a time: specialties, and single problems that are named by (family, seed, index).

`pocket.pocket_tasks` draws its problems in one sequence. A swarm needs each by itself: a member that receives the answers to a
problem makes the problem again and believes no one. Here a problem depends on its own reference and on nothing drawn before. What
has a reference is of the train split (`pocket.split_of`): whatever the seeds, no member trains on numbers that another holds out.
"""

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest

from coterie.tasks.base import TaskSet
from coterie.tasks.overlap import normalise
from coterie.tasks.pocket import Split, as_task, deal_among, draw_story
from coterie.tasks.pocket_families import (
    BOTH,
    FAMILIES,
    HAS_HOW_MANY_M,
    HAS_K,
    HAS_M,
    HAS_N,
    K_FEWER_THAN_M,
    LEFT,
    M_FEWER_THAN_N,
    N_GIVES,
    Family,
)
from coterie.types import CoterieError, Seat, Task

SOURCE = "pocket"
VERSION = "1"
"""To be raised whenever a reference would make another problem; a golden test watches it."""

SPECIALTIES: dict[str, tuple[str, ...]] = {
    "sums": ("add2", "more"),
    "differences": ("diff", "give", "fewer"),
    "products": ("times", "timestotal"),
    "totals": ("moretotal", "fewertotal"),
    "changes": ("add3", "givefind", "chain"),
    "boxes": ("boxplus", "boxless", "change"),
    "trips": ("chain3", "trip"),
    "shops": ("boxtrip", "shop"),
    "bigsums": ("bigadd",),
    "multiples": ("mult",),
    "multgifts": ("multgive",),
    "biggifts": ("biggive",),
    "multmore": ("multmore",),
    "multfewer": ("multfewer",),
    "fewergifts": ("fewergive",),
    "foursums": ("add4",),
}
"""Every family is in exactly one. The first eight are made of what the pocket model was pre-trained on; it does all of them alike.
The last eight are new to it (`UNSEEN`): each has something of its own to learn, and for most of them nearly every group of eight
answers is all wrong. That is where SAPO finds that sharing pays: its members begin at about 1 % right."""

PRETRAINED, NEW = tuple(SPECIALTIES)[:8], tuple(SPECIALTIES)[8:]

OF_FAMILY = {family: specialty for specialty, families in SPECIALTIES.items() for family in families}

_HAS_L = ("{l} has {x} {p}.", "{l} owns {x} {p}.")
_TIMES_N = ("{m} has {x} times as many {p} as {n}.", "{m} owns {x} times as many {p} as {n}.")
_M_GIVES = ("{m} gives {x} {p} to {k}.", "{m} gives away {x} {p}.", "{m} sells {x} {p}.")
_M_NOW = ("How many {p} does {m} have now?", "How many {p} does {m} have in the end?")
_OF_K = ("How many {p} does {k} have?", "What is the number of {p} of {k}?")

UNSEEN: dict[str, Family] = {
    family.name: family
    for family in (
        Family("bigadd", ((60, 90), (60, 90)), ("v0 + v1",), (HAS_N, HAS_M), BOTH, 180),
        Family("mult", ((2, 12), (2, 12)), ("v0 * v1",), (HAS_N, _TIMES_N), HAS_HOW_MANY_M, 150),
        Family("multgive", ((2, 12), (2, 12), (2, 20)), ("v0 * v1", "r0 - v2"), (HAS_N, _TIMES_N, _M_GIVES), _M_NOW, 150),
        Family("biggive", ((100, 150), (60, 99)), ("v0 - v1",), (HAS_N, N_GIVES), LEFT, 150),
        Family(
            "multmore",
            ((2, 12), (2, 12), (2, 20)),
            ("v0 * v1", "r0 + v2"),
            (HAS_N, _TIMES_N, ("{k} has {x} more {p} than {m}.", "{k} has {x} {p} more than {m}.")),
            _OF_K,
            150,
        ),
        Family("multfewer", ((2, 12), (2, 12), (2, 20)), ("v0 * v1", "r0 - v2"), (HAS_N, _TIMES_N, K_FEWER_THAN_M), _OF_K, 150),
        Family("fewergive", ((31, 60), (2, 15), (2, 15)), ("v0 - v1", "r0 - v2"), (HAS_N, M_FEWER_THAN_N, _M_GIVES), _M_NOW),
        Family(
            "add4",
            ((2, 24), (2, 24), (2, 24), (2, 24)),
            ("v0 + v1", "r0 + v2", "r1 + v3"),
            (HAS_N, HAS_M, HAS_K, _HAS_L),
            ("How many {p} do {n}, {m}, {k} and {l} have in all?", "How many {p} do {n}, {m}, {k} and {l} have together?"),
        ),
    )
}
"""Families in words that the pocket model knows, but not in its pre-training text. For one copy: they are not dealt to seats."""

UNTRAINED: dict[str, float] = {
    "sums": 0.46,
    "differences": 0.48,
    "products": 0.48,
    "totals": 0.48,
    "changes": 0.47,
    "boxes": 0.41,
    "trips": 0.48,
    "shops": 0.36,
    "bigsums": 0.40,
    "multiples": 0.30,
    "multgifts": 0.17,
    "biggifts": 0.065,
    "multmore": 0.055,
    "multfewer": 0.022,
    "fewergifts": 0.005,
    "foursums": 0.005,
}
"""Share of right answers of the pocket model before any training: the pocket wording of protocols/solo.py, temperature 1, 400 tasks
each (half train, half held out), standard error at most 0.025. Of the first eight it guesses a good half and gets the rest right
(three quarters of "shops"), so what it learns there is one thing for all of them: not to guess."""


def specialty_tasks(
    train: int, held_out: int, seed: int = 0, specialties: Sequence[str] | None = None, seats: Sequence[Seat] = ()
) -> TaskSet:
    """Tasks whose specialties take turns (`PRETRAINED` when none are named), and within a specialty its families. Train tasks have
    a reference; a repeated question is dropped and counted. A larger set only adds to the end.

    Raises:
        CoterieError: an unknown specialty, or a family that cannot be dealt among `seats`.
    """
    names = PRETRAINED if specialties is None else tuple(specialties)
    unknown = [name for name in names if name not in SPECIALTIES]
    if unknown or not names or len(set(names)) < len(names):
        raise CoterieError(
            f"tasks.specialties: name some of {', '.join(SPECIALTIES)}, each once; not {', '.join(unknown or names)}"
        )
    sets: list[tuple[Task, ...]] = []
    skipped = 0
    wanted: dict[Split, int] = {"train": train, "held_out": held_out}
    for split, count in wanted.items():
        made = []
        for place, name in enumerate(names):
            tasks, dropped = _specialty(name, split, len(range(place, count, len(names))), seed, tuple(seats))
            made.append(tasks)
            skipped += dropped
        sets.append(tuple(task for task in chain.from_iterable(zip_longest(*made)) if task is not None))
    return TaskSet(sets[0], sets[1], skipped)


def _specialty(name: str, split: Split, count: int, seed: int, seats: tuple[Seat, ...]) -> tuple[list[Task], int]:
    families = SPECIALTIES[name]
    tasks: dict[str, Task] = {}
    turn = 0
    while len(tasks) < count:
        task = _make(families[turn % len(families)], split, seats, seed, turn // len(families))
        if isinstance(task, str):
            raise CoterieError(f"tasks.specialties: {task}")
        tasks.setdefault(normalise(task.question), task)
        turn += 1
        if turn > 10 * count + 1000:
            raise CoterieError(f"tasks.{split}: only {len(tasks)} different pocket problems of {name} were found; ask for fewer")
    return list(tasks.values()), turn - len(tasks)


def canonical(seats: Sequence[Seat] = ()) -> str:
    return json.dumps({"seats": list(seats)}, separators=(",", ":"))


def item(family: str, config: str, seed: int, index: int) -> Task | str:
    """The problem of one reference, or why there is none. `config` is `canonical`. The story does not depend on the seats among
    which it is dealt. Costs 40 microseconds, 100 when dealt."""
    return _make(family, "train", tuple(json.loads(config)["seats"]), seed, index)


def _make(name: str, split: Split, seats: tuple[Seat, ...], seed: int, index: int) -> Task | str:
    family = FAMILIES.get(name) or UNSEEN.get(name)
    if family is None:
        return f"there is no pocket family {name}"
    if len(family.facts) < len(seats):
        return f"{name} has fewer facts than the {len(seats)} seats {', '.join(seats)}"
    if seats and name in UNSEEN:
        return f"{name} is for one copy and is not dealt to seats; use a protocol that gives every copy the whole problem"
    rng = random.Random(f"coterie pocket item {VERSION} {name} {seed} {index}{' held_out' * (split == 'held_out')}")
    story = draw_story(rng, family, split)
    task = as_task(story, deal_among(rng, len(story.forms), len(seats)), seats=seats)
    meta = {**task.meta, "specialty": OF_FAMILY[name], "split": split}
    if split == "train":
        meta["reference"] = {
            "source": f"{SOURCE}/{name}",
            "version": VERSION,
            "config": canonical(seats),
            "seed": seed,
            "index": index,
        }
    return replace(task, meta=meta)
