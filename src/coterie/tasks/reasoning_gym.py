"""ReasoningGYM: procedural problems of many specialties, each problem named by a short reference that anybody can make it from.

Source: Stojanovski et al., arXiv:2505.24760; the nine specialties and their settings are those of the SAPO experiments
(arXiv:2509.08721, section 4.1) as released in rl-swarm's datasets.yaml.

**Which item.** The package makes item `idx` of a data set from `seed + idx`, whatever the size, so (seed 1, idx 3) and (seed 4,
idx 0) are one problem. Here the item of a reference is number `seed * 2**32 + index`: two references never name the same number.

**Train and held out** are told apart by the question itself: it is held out when the SHA-256 of its normalised text is divisible
by 8. So no data seed, of this run or of another member of a swarm, can train on a question that anybody holds out; disjoint ranges
of numbers would not do, since small specialties ask the same question under many numbers. Sets are taken from index 0 upwards,
repeats and items that cannot be scored are dropped and counted, and a larger set only adds to the end. What the rule does not see:
another wording of the same problem (bf has two wordings, a fraction four styles).

**No silent zero.** An item whose own answer is not worth 1.0 to its scorer is no task: 0.7 % of propositional_logic, where the
search for a conclusion failed. That data set has `answer: None` since several conclusions are right; Task.answer is its example.
Known failure elsewhere: genrl's reward is 0 wherever the answer is None, so this specialty could never be learned there.
"""

import hashlib
import importlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from decimal import Context, localcontext
from functools import lru_cache
from typing import Any, Literal

from coterie.tasks.base import TaskSet
from coterie.tasks.overlap import normalise
from coterie.types import CoterieError, Task

Split = Literal["train", "held_out"]
SOURCE = "reasoning_gym"
BLOCK = 2**32
"""How many items one data seed has."""
HELD_OUT_SHARE = 8
BARREN = 1000
"""After so many items in a row without a new question a specialty is taken to be used up."""

RELEASED: Mapping[str, Mapping[str, Any]] = {
    "base_conversion": {"min_base": 2, "max_base": 16, "min_value": 0, "max_value": 1000},
    "basic_arithmetic": {
        "min_terms": 2,
        "max_terms": 6,
        "min_digits": 1,
        "max_digits": 4,
        "operators": ["+", "-", "*", "/"],
        "allow_parentheses": True,
        "allow_negation": True,
    },
    "arc_1d": {"min_size": 10, "max_size": 30, "num_train": 3},
    "bf": {"difficulty": 1},
    "propositional_logic": {
        "min_vars": 2,
        "max_vars": 4,
        "min_statements": 2,
        "max_statements": 4,
        "min_complexity": 1,
        "max_complexity": 3,
    },
    "fraction_simplification": {"min_value": 1, "max_value": 100, "min_factor": 2, "max_factor": 100},
    "decimal_arithmetic": {
        "min_num_decimal_places": 1,
        "max_num_decimal_places": 3,
        "min_terms": 2,
        "max_terms": 6,
        "precision": 5,
    },
    "calendar_arithmetic": {
        "year": 2023,
        "offset_upper_bound": 100,
        "tasks": ["count_days", "weekday_of_date", "is_leap_year", "recurring_event_day"],
    },
    "binary_matrix": {"min_n": 3, "max_n": 10, "p_zero": 0.25},
}
"""The settings of the released code, per specialty."""


def load_reasoning_gym(
    specialties: Sequence[str], settings: Mapping[str, Mapping[str, Any]], train: int, held_out: int, seed: int = 0
) -> TaskSet:
    """`train` and `held_out` tasks of data seed `seed`, the specialties taking turns.

    `settings` holds the settings of a specialty whole; the released ones stand where it has none.

    Raises:
        CoterieError: the extra is not installed, a specialty or setting is unknown, or a specialty has too few questions.
    """
    if not specialties or len(set(specialties)) < len(specialties):
        raise CoterieError("tasks.specialties: name at least one specialty, and each only once")
    stray = [name for name in settings if name not in specialties]
    if stray:
        raise CoterieError(f"tasks.settings: {stray[0]} is not one of tasks.specialties; add it there, or take its settings out")
    sets: dict[Split, dict[int, Task]] = {"train": {}, "held_out": {}}
    skipped = 0
    for place, name in enumerate(specialties):
        config = canonical(settings.get(name, RELEASED.get(name, {})))
        turns = {split: range(place, count, len(specialties)) for split, count in (("train", train), ("held_out", held_out))}
        found, dropped = _specialty(name, config, seed, {split: len(places) for split, places in turns.items()})
        skipped += dropped
        for split, tasks in found.items():
            sets[split].update(zip(turns[split], tasks, strict=True))
    return TaskSet(*(tuple(tasks[i] for i in sorted(tasks)) for tasks in sets.values()), skipped=skipped)  # pyright: ignore[reportArgumentType]


def _specialty(name: str, config: str, seed: int, wanted: Mapping[Any, int]) -> tuple[dict[Split, list[Task]], int]:
    """The first tasks of each split that ask something new, and how many items were dropped on the way."""
    dataset(name, config)  # its errors are the user's
    found: dict[Split, list[Task]] = {"train": [], "held_out": []}
    seen: set[str] = set()
    index = skipped = barren = 0
    while any(len(found[split]) < count for split, count in wanted.items()):
        task, index = item(name, config, seed, index), index + 1
        key = "" if isinstance(task, str) else normalise(task.question)
        if isinstance(task, str) or key in seen:
            skipped, barren = skipped + 1, barren + 1
            if barren > BARREN:
                have = ", ".join(f"{len(tasks)} for {split}" for split, tasks in found.items())
                why = f" ({task})" if isinstance(task, str) else ""
                raise CoterieError(
                    f"tasks.train and tasks.held_out: {name} ran out of new questions{why} with {have}; ask for fewer, or widen "
                    f"tasks.settings.{name}"
                )
            continue
        barren = 0
        seen.add(key)
        split: Split = task.meta["split"]
        if len(found[split]) < wanted[split]:
            found[split].append(task)
    return found, skipped


def item(name: str, config: str, seed: int, index: int) -> Task | str:
    """The task of one reference, or why there is none. `config` is `canonical`; see the module for the rule.

    `meta` has the specialty, the split, the reference (the fields of `swarm.words.TaskRef`) and the package's own entry, which the
    grader needs. Costs 10 to 120 microseconds, 0.7 ms for bf.

    Raises:
        CoterieError: see `dataset`.
    """
    if not (0 <= index < BLOCK and seed >= 0):
        return f"seed {seed} and index {index} are out of range: 0 or more, and an index below 2**32"
    data = dataset(name, config)
    try:
        with localcontext(Context()):  # decimal_arithmetic sets the precision of whoever calls it
            entry = data[seed * BLOCK + index]
            answer = entry["answer"] if entry["answer"] is not None else entry["metadata"].get("example_answer")
            worth = data.score_answer(answer, entry)
    except Exception as error:  # a division by zero among decimals, for example: this number is no problem
        return f"{name} cannot make item {index} of seed {seed} ({type(error).__name__})"
    if not isinstance(answer, str) or worth != 1.0:
        return f"the own answer of {name}, item {index} of seed {seed}, is worth {worth:g} to its scorer"
    question = entry["question"]
    reference = {"source": f"{SOURCE}/{name}", "version": version(), "config": config, "seed": seed, "index": index}
    meta = {"specialty": name, "split": split_of(question), "reference": reference, "entry": entry}
    return Task(f"gym-{name}-{seed}-{index}", question, answer, question, meta=meta)


def split_of(question: str) -> Split:
    digest = hashlib.sha256(normalise(question).encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % HELD_OUT_SHARE == 0 else "train"


def canonical(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True, separators=(",", ":"))


@lru_cache(maxsize=1)
def version() -> str:
    """Raises CoterieError when the extra is not installed."""
    try:
        return importlib.metadata.version("reasoning-gym")
    except importlib.metadata.PackageNotFoundError:
        raise CoterieError(
            "the ReasoningGYM tasks need the package reasoning-gym; install it with pip install 'coterie[gym]'"
        ) from None


@lru_cache(maxsize=256)
def dataset(name: str, config: str) -> Any:
    """The package's data set: items by number, and `score_answer`.

    Only data sets whose scorer is the plain comparison of texts, and the nine that were read, are let in: some of the others (and
    binary_matrix, see the grader) run `eval` on the answer, which in a swarm is a stranger's program.

    Raises:
        CoterieError: the extra is not installed, or a name or setting is unknown.
    """
    version()
    factory = importlib.import_module("reasoning_gym.factory")
    importlib.import_module("reasoning_gym")  # fills the registry
    if name not in factory.DATASETS:
        raise CoterieError(
            f"tasks.specialties: reasoning-gym {version()} has no {name}; the released nine are {', '.join(RELEASED)}"
        )
    plain = importlib.import_module("reasoning_gym.dataset").ProceduralDataset.score_answer
    if name not in RELEASED and factory.DATASETS[name][0].score_answer is not plain:
        safe = sorted(other for other, (kind, _) in factory.DATASETS.items() if kind.score_answer is plain or other in RELEASED)
        raise CoterieError(
            f"tasks.specialties: the scorer of {name} has not been checked for answers that harm whoever scores them; choose among "
            f"{', '.join(safe)}"
        )
    settings = json.loads(config)
    own = {"seed", "size"} & set(settings)
    if own:
        raise CoterieError(f"tasks.settings.{name}.{min(own)} is not yours to set; use tasks.seed, tasks.train and tasks.held_out")
    if name == "bf":  # its optimiser prints a dot for every program
        setattr(importlib.import_module("reasoning_gym.code.contrib.bfit.Compiler.Optimizer"), "print", lambda *_, **__: None)  # noqa: B010
    try:
        return factory.create_dataset(name, seed=0, size=1, **settings)
    except (AssertionError, TypeError, ValueError) as error:
        raise CoterieError(f"tasks.settings.{name}: {' '.join(str(error).split())}; see reasoning-gym's {name}") from None
