"""Votes among messages, and means that may have nothing to be taken over."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from coterie.types import Message

Answer = Callable[[str], str | None]
"""Reads the answer out of a text, in one spelling for equal answers; None where there is none."""


def vote(messages: Sequence[Message], answer: Answer) -> Message | None:
    """The first message that gives the most common answer, of equally common ones that which came first; None where no message
    gives an answer. A message without an answer does not vote (majority voting: Wang et al., arXiv:2203.11171)."""
    given = [(found, message) for message in messages if (found := answer(message.text)) is not None]
    if not given:
        return None
    winner = Counter(found for found, _ in given).most_common(1)[0][0]  # equal counts keep the order of first sight
    return next(message for found, message in given if found == winner)


def vote_score(messages: Sequence[Message], answer: Answer) -> float:
    """The score of the vote; 0 where nobody gives an answer."""
    winner = vote(messages, answer)
    return (winner.score or 0.0) if winner else 0.0


def right(message: Message) -> bool:
    return message.score == 1.0


def mean(values: Iterable[float]) -> float | None:
    values = list(values)
    return sum(values) / len(values) if values else None
