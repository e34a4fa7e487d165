"""board: copies post a note each; then each copy reads the notes that it may see, and answers.

Copy i is first "writer i" and then "reader i". Reader j reads the notes j, j + 1, ... (modulo the number of copies), as many as are
`visible`: 1 is its own note alone, the baseline that shows what the others' notes are worth, because a second look at the problem
helps too; 2 is the ring of the published board-writers. Notes are graded but only readers answer for the team.

With `split` the facts are dealt in two, and even copies hold one half, odd copies the other: a reader then needs a note of the
other kind. Its neighbour's is one, except where the number of copies is odd and the ring closes.

Sources: message-board and board-writers of whilehq/whileai-sdk; MAPoRL, arXiv:2502.18439.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.protocols.base import Ask, Protocol, Table
from coterie.protocols.pages import POCKET_BODY, Page, pocket_page
from coterie.protocols.votes import Answer, mean, right, vote_score
from coterie.types import Episode, Message, Seat, Task, View

HANDS: tuple[Seat, Seat] = ("A", "B")
"""The names under which the two halves of the facts are dealt."""


@dataclass(frozen=True, slots=True)
class BoardWording:
    """Pages of writers and readers, with the whole problem and with half the facts. `own` and `other` are what one note looks like
    to its own copy and to others: format strings over {number}, counted among the notes that are seen, and {note}."""

    write: Page
    read: Page
    write_half: Page
    read_half: Page
    own: str
    other: str


_WRITE = (
    "You are one of a team of copies that all work on the user's problem. Post a note for the team's board: three lines at most, "
    "with the steps that matter{but}."
)
_READ = (
    "You are one of a team of copies that all work on the user's problem. Each has posted a note. Under the problem you find the "
    "notes that you can see; they may be wrong, so check what you use. Then finish with the result as \\boxed{number}."
)
_SPLIT = " The facts are spread over the team: nobody was told all of them."
_HALF = "Facts that you know:\n{facts}\n\nQuestion: {ask}"
_BOARD = "\n\nThe board:\n\n{talk}"

PLAIN = BoardWording(
    write=Page(_WRITE.format(but=", and last the result as \\boxed{number}"), "{question}"),
    read=Page(_READ, "{question}" + _BOARD, between="\n\n", nothing="(no notes)"),
    write_half=Page(_WRITE.format(but=" and everything that the others need to know from you") + _SPLIT, _HALF),
    read_half=Page(_READ + _SPLIT, _HALF + _BOARD, between="\n\n", nothing="(no notes)"),
    own="Note {number} (your own):\n{note}",
    other="Note {number}:\n{note}",
)
"""For instruction-tuned models. The prompt of a note does not depend on who will see it, so that arms that differ in that alone
begin with the same notes."""

POCKET = BoardWording(
    write=pocket_page("Answer:"),
    read=pocket_page("Answer:"),
    write_half=Page("", POCKET_BODY + "Write:", nothing="(nothing yet)"),
    read_half=Page("", POCKET_BODY + "Answer:", nothing="(nothing yet)"),
    own="You: {note}",
    other="Partner: {note}",
)
"""For the pocket model, which knows one partner only."""

WORDINGS = {"plain": PLAIN, "pocket": POCKET}


@dataclass(frozen=True, slots=True)
class Board(Protocol):
    """`message_tokens` caps a note, `final_tokens` a reader's answer; `answer` reads the answer out of a text, for the measures."""

    copies: int
    visible: int
    split: bool
    message_tokens: int
    final_tokens: int
    wording: BoardWording
    answer: Answer

    @property
    def seats(self) -> tuple[Seat, ...]:
        return tuple(f"{role} {i}" for role in ("writer", "reader") for i in range(self.copies))

    @property
    def fact_seats(self) -> tuple[Seat, ...]:
        return HANDS if self.split else ()

    async def play(self, task: Task, table: Table) -> None:
        copies = range(self.copies)
        notes = await table.say_all(
            [Ask(f"writer {i}", self.write_view(task, i), self.message_tokens, graded=True, heard=()) for i in copies]
        )
        await table.say_all(
            [
                Ask(
                    f"reader {j}",
                    self.read_view(task, j, notes),
                    self.final_tokens,
                    final=True,
                    heard=tuple(sorted(notes[i].turn for i in self.seen(j))),
                )
                for j in copies
            ]
        )

    def seen(self, reader: int) -> tuple[int, ...]:
        """Which notes a reader may see, its own first."""
        return tuple((reader + step) % self.copies for step in range(self.visible))

    def write_view(self, task: Task, copy: int) -> View:
        hand = self._hand(task, copy)
        return (self.wording.write if hand is None else self.wording.write_half).view(task, hand=hand)

    def read_view(self, task: Task, copy: int, notes: Sequence[Message]) -> View:
        """The prompt of a reader: a pure function of the notes. A hidden note is left out as if it had not been posted, even for
        its own copy, whose reader is another seat than its writer."""
        words, hand = self.wording, self._hand(task, copy)
        shown = [i for i in self.seen(copy) if not notes[i].hidden]
        lines = [
            (words.own if i == copy else words.other).format(number=number, note=notes[i].text)
            for number, i in enumerate(shown, start=1)
        ]
        return (words.read if hand is None else words.read_half).view(task, lines, hand)

    def _hand(self, task: Task, copy: int) -> tuple[str, ...] | None:
        return task.private[HANDS[copy % 2]] if self.split else None

    def caps(self) -> Mapping[str, int]:
        return {"protocol.message_tokens": self.message_tokens, "protocol.final_tokens": self.final_tokens}

    def measures(self, episodes: Sequence[Episode], tasks: Mapping[str, Task]) -> dict[str, Any]:
        """note_score: mean score of the notes; vote_score: of the most common answer among them; any_note: of the best note. Shares
        of readers: switched, whose answer is not that of their own note (to have none is an answer of its own); rescued, who are
        right though their own note is wrong; misled, who are wrong though it is right. Episodes with a grading error do not count.
        """
        graded = [episode.messages for episode in episodes if not episode.errors]
        boards = [messages[: self.copies] for messages in graded]
        pairs = [pair for messages in graded for pair in zip(messages[: self.copies], messages[self.copies :], strict=True)]
        return {
            "note_score": mean(note.score or 0.0 for notes in boards for note in notes),
            "vote_score": mean(vote_score(notes, self.answer) for notes in boards),
            "any_note": mean(max(note.score or 0.0 for note in notes) for notes in boards),
            "switched": mean(self.answer(note.text) != self.answer(reply.text) for note, reply in pairs),
            "rescued": mean(right(reply) and not right(note) for note, reply in pairs),
            "misled": mean(right(note) and not right(reply) for note, reply in pairs),
        }
