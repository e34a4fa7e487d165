"""The families of the pocket model's word problems: which numbers they draw, what is said, how the answer is worked out.

A family is a row of facts, one number each, in the order of the story. Every number is needed for the answer; how that is proved
is in `pocket.py`. Texts are format strings over the number of the fact {x}, people {n} {m} {k} {l}, two things {p} {q} (one of
them: {s} {t}) and a container {c} (one of them: {d}). They are short, and every word is one token of the pocket tokenizer.
"""

from collections.abc import Callable
from dataclasses import dataclass

NAMES = (
    "Ann",
    "Ben",
    "Cal",
    "Dan",
    "Eve",
    "Fay",
    "Gus",
    "Hal",
    "Ivy",
    "Jon",
    "Kim",
    "Leo",
    "Mia",
    "Ned",
    "Ola",
    "Pam",
    "Ray",
    "Sue",
    "Tom",
    "Uma",
)
ITEMS = ("apple", "pen", "cup", "book", "ball", "card", "shell", "stone", "cake", "hat", "key", "stamp")
CONTAINERS = (("box", "boxes"), ("bag", "bags"), ("basket", "baskets"), ("jar", "jars"))


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of problem.

    `ranges` are the inclusive ranges of the numbers, one per fact; `work` lists the steps as "left operator right" over the
    numbers v0, v1, … and the results r0, r1, … of earlier steps, and the last result is the answer. `facts[i]` and `asks` are
    the surface forms. `limit` bounds every result from above, which keeps the arithmetic within reach of a tiny model.
    """

    name: str
    ranges: tuple[tuple[int, int], ...]
    work: tuple[str, ...]
    facts: tuple[tuple[str, ...], ...]
    asks: tuple[str, ...]
    limit: int = 99

    @property
    def steps(self) -> int:
        return len(self.work)


OPERATORS: dict[str, Callable[[int, int], int]] = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}


def worked(family: Family, numbers: tuple[int, ...]) -> list[tuple[int, str, int, int]]:
    """The steps as (left, operator, right, result), for example [(3, "*", 9, 27), (27, "+", 4, 31)]."""
    values = {f"v{i}": number for i, number in enumerate(numbers)}
    lines = []
    for i, step in enumerate(family.work):
        left, operator, right = step.split()
        result = OPERATORS[operator](values[left], values[right])
        values[f"r{i}"] = result
        lines.append((values[left], operator, values[right], result))
    return lines


def answer_of(family: Family, numbers: tuple[int, ...]) -> int:
    return worked(family, numbers)[-1][3]


def allowed(family: Family, numbers: tuple[int, ...]) -> bool:
    """Whether these numbers make a problem: in range, all distinct, no result below 1 or above the limit, answer not given."""
    if len(set(numbers)) < len(numbers) or any(not low <= v <= high for v, (low, high) in zip(numbers, family.ranges, strict=True)):
        return False
    results = [line[3] for line in worked(family, numbers)]
    return all(1 <= result <= family.limit for result in results) and results[-1] not in numbers


HAS_N = ("{n} has {x} {p}.", "{n} owns {x} {p}.", "At first {n} has {x} {p}.")
HAS_M = ("{m} has {x} {p}.", "{m} owns {x} {p}.")
HAS_K = ("{k} has {x} {p}.", "{k} owns {x} {p}.")
M_MORE_THAN_N = ("{m} has {x} more {p} than {n}.", "{m} has {x} {p} more than {n}.", "{m} owns {x} more {p} than {n}.")
M_FEWER_THAN_N = ("{m} has {x} fewer {p} than {n}.", "{m} has {x} {p} fewer than {n}.", "{m} owns {x} fewer {p} than {n}.")
K_FEWER_THAN_M = ("{k} has {x} fewer {p} than {m}.", "{k} has {x} {p} fewer than {m}.", "{k} owns {x} fewer {p} than {m}.")
L_MORE_THAN_K = ("{l} has {x} more {p} than {k}.", "{l} has {x} {p} more than {k}.", "{l} owns {x} more {p} than {k}.")
N_GIVES = ("{n} gives {x} {p} to {m}.", "{n} sells {x} {p}.", "{n} gives away {x} {p}.")
N_FINDS = ("{n} finds {x} more {p}.", "{n} buys {x} more {p}.", "{k} brings {x} {p} to {n}.")
N_LOSES = ("{n} loses {x} {p}.", "{n} drops {x} {p}.", "{l} takes {x} {p} from {n}.")
CONTAINERS_OF = ("There are {x} {c}.", "{n} has {x} {c}.", "{n} fills {x} {c}.")
IN_EACH = ("Each {d} holds {x} {p}.", "There are {x} {p} in each {d}.", "Every {d} has {x} {p}.")
PRICE_P = ("Each {s} costs {x} coins.", "The price of one {s} is {x} coins.")
PRICE_Q = ("Each {t} costs {x} coins.", "The price of one {t} is {x} coins.")
BUYS_P = ("{n} buys {x} {p}.", "{n} takes {x} {p}.")
BUYS_Q = ("{n} buys {x} {q}.", "{n} takes {x} {q}.")
HOW_MANY_N = ("How many {p} does {n} have now?", "How many {p} does {n} have in the end?")
LEFT = ("How many {p} does {n} have left?", "How many {p} does {n} keep?")
BOTH = ("How many {p} do {n} and {m} have together?", "How many {p} do {n} and {m} have in all?")
IN_ALL = ("How many {p} are there in all?", "How many {p} are there now?")
HAS_HOW_MANY_M = ("How many {p} does {m} have?", "What is the number of {p} of {m}?")

FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        # One step. "more" and "fewer" (and their totals) draw the same numbers, so that these do not tell which of the two it is.
        Family("add2", ((3, 60), (3, 60)), ("v0 + v1",), (HAS_N, HAS_M), BOTH),
        Family(
            "diff",
            ((10, 99), (2, 90)),
            ("v0 - v1",),
            (HAS_N, HAS_M),
            ("How many more {p} does {n} have than {m}?", "How many fewer {p} does {m} have than {n}?"),
        ),
        Family("give", ((10, 99), (2, 90)), ("v0 - v1",), (HAS_N, N_GIVES), LEFT),
        Family(
            "times",
            ((2, 12), (2, 12)),
            ("v0 * v1",),
            (CONTAINERS_OF, IN_EACH),
            ("How many {p} are there in all?", "How many {p} are in the {c}?"),
            limit=150,
        ),
        Family("more", ((31, 60), (2, 30)), ("v0 + v1",), (HAS_N, M_MORE_THAN_N), HAS_HOW_MANY_M),
        Family("fewer", ((31, 60), (2, 30)), ("v0 - v1",), (HAS_N, M_FEWER_THAN_N), HAS_HOW_MANY_M),
        # Two steps.
        Family("moretotal", ((21, 38), (2, 20)), ("v0 + v1", "v0 + r0"), (HAS_N, M_MORE_THAN_N), BOTH),
        Family("fewertotal", ((21, 38), (2, 20)), ("v0 - v1", "v0 + r0"), (HAS_N, M_FEWER_THAN_N), BOTH),
        Family(
            "timestotal",
            ((2, 12), (2, 12)),
            ("v0 * v1", "r0 + v0"),
            (HAS_N, ("{m} has {x} times as many {p} as {n}.", "{m} owns {x} times as many {p} as {n}.")),
            BOTH,
            limit=160,
        ),
        Family(
            "add3",
            ((2, 40), (2, 40), (2, 40)),
            ("v0 + v1", "r0 + v2"),
            (HAS_N, HAS_M, HAS_K),
            ("How many {p} do {n}, {m} and {k} have in all?", "How many {p} do {n}, {m} and {k} have together?"),
        ),
        Family("givefind", ((10, 60), (2, 40), (2, 40)), ("v0 - v1", "r0 + v2"), (HAS_N, N_GIVES, N_FINDS), HOW_MANY_N),
        Family(
            "boxplus",
            ((2, 12), (2, 12), (2, 40)),
            ("v0 * v1", "r0 + v2"),
            (CONTAINERS_OF, IN_EACH, ("There are {x} more {p} on the table.", "{n} finds {x} more {p}.")),
            IN_ALL,
            limit=150,
        ),
        Family(
            "boxless",
            ((3, 12), (3, 12), (2, 24)),
            ("v0 * v1", "r0 - v2"),
            (CONTAINERS_OF, IN_EACH, ("{n} takes out {x} {p}.", "{n} loses {x} of the {p}.")),
            ("How many {p} are left?", "How many {p} are there now?"),
            limit=150,
        ),
        Family(
            "change",
            ((2, 12), (2, 12), (60, 150)),
            ("v0 * v1", "v2 - r0"),
            (PRICE_P, BUYS_P, ("{n} pays with {x} coins.", "{n} has {x} coins.")),
            ("How many coins does {n} get back?", "How many coins are left?"),
            limit=150,
        ),
        Family(
            "chain",
            ((5, 50), (2, 40), (2, 40)),
            ("v0 + v1", "r0 - v2"),
            (HAS_N, M_MORE_THAN_N, K_FEWER_THAN_M),
            ("How many {p} does {k} have?", "What is the number of {p} of {k}?"),
        ),
        # Three steps.
        Family(
            "chain3",
            ((10, 40), (2, 20), (2, 20), (2, 20)),
            ("v0 + v1", "r0 - v2", "r1 + v3"),
            (HAS_N, M_MORE_THAN_N, K_FEWER_THAN_M, L_MORE_THAN_K),
            ("How many {p} does {l} have?", "What is the number of {p} of {l}?"),
        ),
        Family(
            "trip",
            ((30, 60), (2, 20), (2, 20), (2, 20)),
            ("v0 - v1", "r0 + v2", "r1 - v3"),
            (HAS_N, N_GIVES, N_FINDS, N_LOSES),
            HOW_MANY_N,
        ),
        Family(
            "boxtrip",
            ((3, 12), (3, 12), (2, 20), (2, 20)),
            ("v0 * v1", "r0 + v2", "r1 - v3"),
            (CONTAINERS_OF, IN_EACH, N_FINDS, N_LOSES),
            IN_ALL,
            limit=150,
        ),
        Family(
            "shop",
            ((2, 12), (2, 12), (2, 12), (2, 12)),
            ("v0 * v1", "v2 * v3", "r0 + r1"),
            (PRICE_P, BUYS_P, PRICE_Q, BUYS_Q),
            ("How many coins does {n} pay to get {p} and {q}?", "How many coins does {n} pay in all to get {p} and {q}?"),
            limit=180,
        ),
    )
}
