"""Talk measures: what the seats of a chat tell each other, and what they do with it.

Source: the measures of talk-to-solve. With `published=True` numbers and agreement follow its rules to the letter; the default
mends two of them (weaknesses W15 and W16): commas are dropped inside digit groups only, so that "3,4" is two numbers, and two
answers agree when they are the same answer, boxed or not.

Limits, which a report should repeat: number words ("twice", "half", "a dozen") and numbers worked out from private ones are not
seen; a seat may write a partner's number by chance; and the words of a channel that is cut can still score high on `shared`. Read
`shared` and `used` next to those of the same chat with the channel off.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from coterie.grading.base import boxed
from coterie.grading.exact import answer_text, normalise_answer
from coterie.grading.numeric import Number, answer_number
from coterie.protocols.base import Protocol
from coterie.types import CoterieError, Episode, Message, Seat, Task

_NUMBER = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])(?:\.[0-9]+)?|[0-9]+(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+")
_PUBLISHED_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_PUBLISHED_BOX = re.compile(r"\\boxed\{([^}]*)\}")


def measure(protocol: Protocol, episodes: Sequence[Episode], tasks: Mapping[str, Task]) -> dict[str, Any]:
    """The measures of all talk and those of the protocol."""
    return {**talk_measures(episodes, tasks), **protocol.measures(episodes, tasks)}


def numbers(text: str, published: bool = False) -> frozenset[str]:
    """The numbers of `text` in digits, each in one spelling: "1,000", "1000" and "1000.0" are "1000".

    With `published`, every comma of the text is deleted first and spellings are kept: "3,4" is "34", "5.0" is not "5".
    """
    if published:
        return frozenset(_PUBLISHED_NUMBER.findall(text.replace(",", "")))
    return frozenset(_spelling(found.group()) for found in _NUMBER.finditer(text))


def private_numbers(task: Task, seat: Seat, published: bool = False) -> frozenset[str]:
    """Numbers that only `seat` can know: in its facts, in no other seat's facts, and not in the ask."""
    return _held(task, [seat], published) - _held(task, set(task.private) - {seat}, published) - numbers(task.ask, published)


def others_numbers(task: Task, seat: Seat, published: bool = False) -> frozenset[str]:
    """Numbers that `seat` can know from the others alone: in another seat's facts, not in its own, and not in the ask."""
    return _held(task, set(task.private) - {seat}, published) - _held(task, [seat], published) - numbers(task.ask, published)


MOST_DIGITS = 20
"""A number with more characters is not reckoned with: it is no quantity of a word problem, and exact arithmetic stays cheap."""


def unheard(message: Message, task: Task, heard: Iterable[str]) -> bool | None:
    """Whether `message` holds a number that its seat was never given: private to other seats, in none of the texts that it `heard`,
    and not the result of one step of arithmetic (+, -, *, /) over numbers that it was given or wrote before it. None where the
    other seats hold nothing that this one lacks.

    A guess may meet such a number by chance, so read its share next to that of the same chat with the channel off.
    """
    secret = others_numbers(task, message.seat) if message.seat in task.private else frozenset()
    if not secret:
        return None
    known = _held(task, [message.seat], False) | numbers(task.ask)
    known = known.union(*(numbers(text) for text in heard))
    secret -= known
    if not secret & numbers(message.text):
        return False
    values = {Fraction(number) for number in known if len(number) <= MOST_DIGITS}
    for found in _NUMBER.finditer(message.text):
        number = _spelling(found.group())
        if len(number) > MOST_DIGITS:
            continue
        if number in secret and not _one_step(values, Fraction(number)):
            return True
        values.add(Fraction(number))
    return False


def _one_step(values: Collection[Fraction], result: Fraction) -> bool:
    """Whether two of `values` (or one of them twice) come to `result` by one of the four operations."""
    return any(
        result - a in values or a - result in values or (a != 0 and (result / a in values or a * result in values)) for a in values
    )


def highlights(text: str, own_numbers: Collection[str], others_numbers: Collection[str]) -> list[tuple[int, int, str]]:
    """Where `text` holds private numbers: `(start, end, kind)` in order, kind "own" (sent) or "others" (used)."""
    spans = []
    for found in _NUMBER.finditer(text):
        spelling = _spelling(found.group())
        if spelling in own_numbers or spelling in others_numbers:
            spans.append((found.start(), found.end(), "own" if spelling in own_numbers else "others"))
    return spans


def agree(texts: Iterable[str], published: bool = False) -> bool:
    """Whether all final messages `texts` give an answer, and the same one.

    The answer is the number that the numeric grader reads, or else the text of the box. With `published` it is the text up to the
    first closing brace of the last box, and a message without a box never agrees.
    """
    answers = [_published_box(text) if published else _answer(text) for text in texts]
    if any(answer is None for answer in answers):
        return False
    return all(_same(answers[0], answer) for answer in answers[1:])


def answer_spelling(text: str) -> str | None:
    """The answer of `text`, in one spelling for equal numbers ("1,800.00" and "1800" are one), to count votes by; None where it
    gives none. Read as `agree` reads it, so that a policy that stops boxing still votes."""
    answer = _answer(text)
    return str(answer.value) if isinstance(answer, Number) else answer


def talk_measures(episodes: Iterable[Episode], tasks_by_id: Mapping[str, Task], published: bool = False) -> dict[str, Any]:
    """Measures over all `episodes` of a chat, ready for JSON; None where nothing defines a measure.

    shared: of a seat's private numbers, the share that its non-final messages say; mean over episodes and seats that have some.
    used: of the numbers that only others hold, the share that a seat's final message says; mean likewise.
    unheard: share of the messages that hold a number which their seat was never given (`unheard`).
    asked: share of seats' first messages with a "?". agree: share of episodes whose final messages give one answer.
    message_chars, message_tokens: mean length of non-final messages; final_chars, final_tokens: of final ones. Tokens are those
    sampled, the end-of-message token included. cut: share of messages that the cap ended; cut_by_turn: by turn. boxed: share of
    final messages with a closed box. score_by_seat: mean score of each seat that has one; reward: mean team reward of the
    episodes without a grading error; errors: number of episodes with one.

    Raises:
        CoterieError: an episode's task is not in `tasks_by_id`.
    """
    values: dict[str, list[float]] = defaultdict(list)
    cut_by_turn: dict[int, list[float]] = defaultdict(list)
    scores: dict[Seat, list[float]] = defaultdict(list)
    for episode in episodes:
        if episode.task_id not in tasks_by_id:
            raise CoterieError(
                f"an episode plays task {episode.task_id!r}, which is not among the tasks; give the task set it was played on"
            )
        _exchange(episode, tasks_by_id[episode.task_id], published, values)
        finals = [message for message in episode.messages if message.final]
        if len(finals) > 1:
            values["agree"].append(agree((message.text for message in finals), published))
        for message in episode.messages:
            kind = "final" if message.final else "message"
            values[f"{kind}_chars"].append(len(message.text))
            values[f"{kind}_tokens"].append(len(message.ids))
            values["cut"].append(message.stop == "length")
            cut_by_turn[message.turn].append(message.stop == "length")
            if message.final:
                values["boxed"].append(boxed(message.text) is not None)
        for seat, score in episode.scores.items():
            scores[seat].append(score)
        if episode.reward is not None:
            values["reward"].append(episode.reward)
        values["errors"].append(bool(episode.errors))
    names = ("shared", "used", "unheard", "asked", "agree", "boxed", "reward", "cut")
    lengths = ("message_chars", "message_tokens", "final_chars", "final_tokens")
    return {
        "episodes": len(values["errors"]),
        "errors": int(sum(values["errors"])),
        **{name: _mean(values[name]) for name in (*names, *lengths)},
        "cut_by_turn": {str(turn): _mean(cut_by_turn[turn]) for turn in sorted(cut_by_turn)},
        "score_by_seat": {seat: _mean(scores[seat]) for seat in sorted(scores)},
    }


def _exchange(episode: Episode, task: Task, published: bool, values: dict[str, list[float]]) -> None:
    """Adds what each seat shared, used, asked and made up in one episode. A seat without facts of its own shares and uses nothing:
    where all are given the whole problem nothing is private, and a board's writers and readers hold facts under other names."""
    texts = {message.turn: message.text for message in episode.messages}
    by_seat: dict[Seat, list[Message]] = defaultdict(list)
    for message in episode.messages:
        by_seat[message.seat].append(message)
    for seat, messages in by_seat.items():
        for name, pool, said in (
            ("shared", private_numbers, [message.text for message in messages if not message.final]),
            ("used", others_numbers, [message.text for message in messages if message.final]),
        ):
            wanted = pool(task, seat, published) if seat in task.private else ()
            if wanted and said:
                heard = frozenset().union(*(numbers(text, published) for text in said))
                values[name].append(len(wanted & heard) / len(wanted))
        for message in messages:
            invented = unheard(message, task, (texts[turn] for turn in message.heard))
            if invented is not None:
                values["unheard"].append(invented)
        if not messages[0].final:
            values["asked"].append("?" in messages[0].text)


def _held(task: Task, seats: Iterable[Seat], published: bool) -> frozenset[str]:
    return frozenset().union(*(numbers(fact, published) for seat in seats for fact in task.private.get(seat, ())))


def _spelling(raw: str) -> str:
    whole, point, decimals = raw.replace(",", "").partition(".")
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + (point + decimals if decimals else "")


def _answer(text: str) -> Number | str | None:
    number = answer_number(text)
    if number is not None:
        return number
    content = answer_text(text, boxed_only=True)
    return normalise_answer(content) or None if content is not None else None


def _same(one: Number | str | None, other: Number | str | None) -> bool:
    return one.same(other) if isinstance(one, Number) and isinstance(other, Number) else one == other


def _published_box(text: str) -> str | None:
    boxes = _PUBLISHED_BOX.findall(text)
    return boxes[-1].strip() if boxes else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
