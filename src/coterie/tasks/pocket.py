"""pocket: short word problems whose facts are dealt to the seats, made on the spot, for the model that ships with the package.

Each fact holds one number and every number is needed. For each problem the generator proves that no part is enough: `witness`
finds, for each seat, a second world in which that seat is told the same and the answer is another one. How often the best guesser
could be right from one of two halves is published per family in `BLIND_GUESS` (exact, by enumeration; `pocket_blind.py` computes
it). With more seats each knows less and the guesser can only be worse.

Train and held-out problems differ in their numbers: a family with the same numbers is in one split only, whatever the names, the
things and the wording. Single sums inside a problem (25 + 17) occur in both.

Pure python: no tensor library, and `random.Random` with a string seed, whose stream is the same on every platform.
"""

import hashlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from coterie.tasks.pocket_families import CONTAINERS, FAMILIES, ITEMS, NAMES, Family, allowed, answer_of
from coterie.types import CoterieError, Seat, Task

Split = Literal["train", "held_out"]

BLIND_GUESS: dict[str, float] = {
    "add2": 0.019,
    "diff": 0.019,
    "give": 0.019,
    "times": 0.100,
    "more": 0.034,
    "fewer": 0.035,
    "moretotal": 0.054,
    "fewertotal": 0.054,
    "timestotal": 0.100,
    "add3": 0.027,
    "givefind": 0.028,
    "boxplus": 0.054,
    "boxless": 0.068,
    "change": 0.053,
    "chain": 0.028,
    "chain3": 0.045,
    "trip": 0.044,
    "boxtrip": 0.048,
    "shop": 0.062,
}
"""Best possible share of right answers from one half alone, per family: the mean over the seats' halves as `pocket_tasks` deals
them. No way of playing with the channel cut can beat it by anything but luck."""

HELD_OUT_SHARE = 8
"""One combination of numbers in this many is held out."""


@dataclass(frozen=True, slots=True)
class Story:
    """A problem before it is dealt: fact texts with the number left open as {x}, the numbers, and the question."""

    family: Family
    forms: tuple[str, ...]
    numbers: tuple[int, ...]
    ask: str

    @property
    def facts(self) -> tuple[str, ...]:
        return tell(self.forms, self.numbers)

    @property
    def answer(self) -> int:
        return answer_of(self.family, self.numbers)


@dataclass(frozen=True, slots=True)
class World:
    """One complete way things could be: every fact in the order of the story, and the answer that follows."""

    facts: tuple[str, ...]
    answer: str


def tell(forms: tuple[str, ...], numbers: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(form.replace("{x}", str(number)) for form, number in zip(forms, numbers, strict=True))


def split_of(family: str, numbers: tuple[int, ...]) -> Split:
    digest = hashlib.sha256(f"{family}:{','.join(map(str, numbers))}".encode()).digest()
    return "held_out" if int.from_bytes(digest[:8], "big") % HELD_OUT_SHARE == 0 else "train"


def draw_numbers(rng: random.Random, family: Family, split: Split) -> tuple[int, ...]:
    """Uniform over the allowed numbers of this split (by rejection, so `BLIND_GUESS` can be enumerated)."""
    while True:
        numbers = tuple(rng.randint(low, high) for low, high in family.ranges)
        if allowed(family, numbers) and split_of(family.name, numbers) == split:
            return numbers


def draw_story(rng: random.Random, family: Family, split: Split) -> Story:
    numbers = draw_numbers(rng, family, split)
    n, m, k, l = rng.sample(NAMES, 4)  # noqa: E741 (the templates call them so)
    s, t = rng.sample(ITEMS, 2)
    d, c = rng.choice(CONTAINERS)
    words = {"n": n, "m": m, "k": k, "l": l, "s": s, "p": f"{s}s", "t": t, "q": f"{t}s", "c": c, "d": d, "x": "{x}"}
    forms = tuple(rng.choice(fact).format(**words) for fact in family.facts)
    return Story(family, forms, numbers, rng.choice(family.asks).format(**words))


def deal(rng: random.Random, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which facts go to seat A and which to seat B: uniform over the ways in which both get at least one."""
    mask = rng.randrange(1, 2**count - 1)
    return tuple(i for i in range(count) if mask >> i & 1), tuple(i for i in range(count) if not mask >> i & 1)


def deal_among(rng: random.Random, count: int, ways: int) -> tuple[tuple[int, ...], ...]:
    """Which facts go to each of `ways` seats: uniform over the ways in which each gets at least one (by rejection). A single seat
    gets all of them; with no seats there are no hands."""
    if ways == 2:
        return deal(rng, count)  # the pocket model was made with these draws
    if ways < 2:
        return (tuple(range(count)),) * ways
    while True:
        owners = [rng.randrange(ways) for _ in range(count)]
        if len(set(owners)) == ways:
            return tuple(tuple(i for i in range(count) if owners[i] == seat) for seat in range(ways))


def pocket_tasks(
    split: Split, count: int, seed: int, families: tuple[str, ...] | None = None, seats: Sequence[Seat] = ("A", "B")
) -> list[Task]:
    """`count` problems, no two with the same question text. The same arguments give the same problems everywhere, and a larger
    count only adds to the end. Families take turns in a shuffled order, so any long stretch is balanced.

    `families` restricts the kinds of problem (default: all that have a fact for every seat). The facts are dealt among `seats`;
    without any, nothing is dealt. Raises CoterieError for unknown names, for a family with fewer facts than seats, or when a split
    of the given families has too few problems.
    """
    names = tuple(n for n, f in FAMILIES.items() if len(f.facts) >= len(seats)) if families is None else tuple(families)
    unknown = [name for name in names if name not in FAMILIES]
    if unknown or not names:
        raise CoterieError(
            f"tasks.families: no pocket family {', '.join(unknown) or '(empty list)'}; there are {', '.join(FAMILIES)}"
        )
    if split not in ("train", "held_out"):
        raise CoterieError(f'tasks.split: "{split}" is not a split of the pocket tasks; use "train" or "held_out"')
    few = [name for name in names if len(FAMILIES[name].facts) < len(seats)]
    if few:
        raise CoterieError(f"tasks.families: {', '.join(few)} has fewer facts than the {len(seats)} seats {', '.join(seats)}")
    rng = random.Random(f"coterie pocket {split} {seed} {' '.join(names)}")
    tasks: dict[str, Task] = {}
    misses = 0
    while len(tasks) < count:
        for name in rng.sample(names, len(names)):
            story = draw_story(rng, FAMILIES[name], split)
            task = as_task(story, deal_among(rng, len(story.forms), len(seats)), seats=seats)
            misses = misses + 1 if task.question in tasks else 0
            if misses > 1000:
                raise CoterieError(f"tasks.count: only {len(tasks)} different pocket problems of {', '.join(names)} were found")
            tasks.setdefault(task.question, task)
    return list(tasks.values())[:count]


def as_task(
    story: Story, hands: tuple[tuple[int, ...], ...], prove: bool = True, seats: Sequence[Seat] = tuple("ABCDEFGH")
) -> Task:
    """The story dealt to `seats` with its proof checked (`prove`; the pre-training text, which makes millions of stories
    that nobody is tested on, leaves it out). `meta` keeps the facts in the order of the story and who was told which, so that the
    same problem can be dealt in another way."""
    facts = story.facts
    question = " ".join((*facts, story.ask))
    task = Task(
        id=f"pocket-{story.family.name}-{hashlib.sha256(question.encode()).hexdigest()[:10]}",
        question=question,
        answer=str(story.answer),
        ask=story.ask,
        private={seat: tuple(facts[i] for i in hand) for seat, hand in zip(seats, hands, strict=False)},
        meta={
            "family": story.family.name,
            "steps": story.family.steps,
            "numbers": story.numbers,
            "facts": facts,
            "forms": story.forms,
            "hands": dict(zip(seats, hands, strict=False)),
        },
    )
    if prove and len(hands) > 1:
        witness(task)
    return task


def witness(task: Task) -> dict[str, tuple[World, World]]:
    """The proof that no seat can know the answer: for each seat two worlds in which it is told exactly the same and whose answers
    differ. The first is the problem itself. Raises ValueError when a seat's facts settle the answer."""
    family = FAMILIES[task.meta["family"]]
    forms, numbers = task.meta["forms"], task.meta["numbers"]
    proof: dict[Seat, tuple[World, World]] = {}
    for seat, hand in task.meta["hands"].items():
        other = another_world(family, numbers, hand)
        if other is None:
            raise ValueError(f"{task.id}: the facts of seat {seat} alone settle the answer")
        proof[seat] = (World(task.meta["facts"], task.answer), World(tell(forms, other), str(answer_of(family, other))))
    return proof


def another_world(family: Family, numbers: tuple[int, ...], known: tuple[int, ...]) -> tuple[int, ...] | None:
    """The first allowed numbers, in counting order, that agree at the `known` places and have another answer."""
    ranges = [(numbers[i],) if i in known else range(low, high + 1) for i, (low, high) in enumerate(family.ranges)]
    answer = answer_of(family, numbers)
    return next((w for w in itertools.product(*ranges) if allowed(family, w) and answer_of(family, w) != answer), None)


def alone(task: Task) -> Task:
    """The same problem with every fact in one hand, seat "A": what a single copy is given when its own skill is measured."""
    return Task(task.id, task.question, task.answer, task.ask, {"A": tuple(task.meta["facts"])}, task.meta)
