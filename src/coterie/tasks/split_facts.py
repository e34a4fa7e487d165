"""The published split rule: a word problem becomes facts, dealt out to the seats, and an ask that all of them see.

Source: talk-to-solve and talk-methods of whilehq/whileai-sdk. With two seats this is their rule exactly: 3,782 of the 7,473 GSM8K
train problems and 693 of the 1,319 test problems pass.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.types import Seat

_BREAK = re.compile(r"(?<=[.?!])\s+(?=[A-Z$])")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True, slots=True)
class Split:
    """`facts` holds what each seat is told, `ask` the sentence with the question."""

    ask: str
    facts: Mapping[Seat, tuple[str, ...]]


def split_sentences(text: str) -> tuple[str, ...]:
    """Sentences of `text`, cut at whitespace that follows `.`, `?` or `!` and precedes a capital letter or `$`.

    There is no cut before a digit, a lower-case letter or a quote, and "Mr. Smith" is cut: the published rule, kept as it is.
    """
    return tuple(sentence for part in _BREAK.split(text) if (sentence := part.strip()))


def split_or_reason(question: str, seats: Sequence[Seat] = ("A", "B")) -> Split | str:
    """The split of `question`, or why it is rejected, as the end of a sentence that begins with "the question".

    The ask is the last sentence that ends in "?"; every other sentence is a fact, in order, even one after the ask. Fact i goes to
    seat i mod n. There must be two facts or more, one for each seat at least, and each seat's part must hold a number in digits.
    """
    sentences = split_sentences(question)
    asks = [i for i, sentence in enumerate(sentences) if sentence.endswith("?")]
    if not asks:
        return "has no sentence that ends in a question mark"
    facts = sentences[: asks[-1]] + sentences[asks[-1] + 1 :]
    needed = max(2, len(seats))
    if len(facts) < needed:
        return f"has {len(facts)} sentence{'s' * (len(facts) != 1)} beside the one that asks, and {needed} are needed"
    parts = {seat: facts[i :: len(seats)] for i, seat in enumerate(seats)}
    for seat, part in parts.items():
        if not any(_NUMBER.search(fact) for fact in part):
            return f"leaves seat {seat} without a number in digits"
    return Split(ask=sentences[asks[-1]], facts=parts)


def split_facts(question: str, seats: Sequence[Seat] = ("A", "B")) -> Split | None:
    """The split of `question`, or None where the rule rejects it (`split_or_reason` says why)."""
    split = split_or_reason(question, seats)
    return split if isinstance(split, Split) else None
