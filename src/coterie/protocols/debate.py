"""debate: copies answer, read each other's answers and revise, for a number of rounds.

Round 1 is answered by all copies on their own. In each later round a copy sees its own latest answer and those of the others.

A debate asks for `copies` x `rounds` answers, and most of what it gains over one answer is what a vote among as many independent
answers gains: in a rerun of published debates scores fell from round to round in most rows (deeplearning-wisc/debate-or-vote,
issue 3). So `deliver=False` plays that vote: the same number of answers, each an independent draw of the round 1 prompt, and all of
them vote. Compare a debate with it before praising the debate.

Sources: Du et al., arXiv:2305.14325; trained: MAPoRL, arXiv:2502.18439.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.protocols.base import Ask, Protocol, Table
from coterie.protocols.pages import Page, pocket_page
from coterie.protocols.votes import Answer, mean, right, vote_score
from coterie.types import Episode, Message, Seat, Task, View


@dataclass(frozen=True, slots=True)
class DebateWording:
    """The pages of round 1 and of later rounds. `own` and `other` are what an answer looks like to the copy that gave it and to
    others: format strings over {number}, counted among the answers that are seen, and {answer}."""

    first: Page
    again: Page
    own: str
    other: str


PLAIN = DebateWording(
    first=Page(
        "Solve the problem that the user gives you. Reason in a few short steps, then finish with the result as \\boxed{number}.",
        "{question}",
    ),
    again=Page(
        "You and others are solving the user's problem. Under it you find what you answered and what they answered. Compare the "
        "steps, find out who is right, and write your answer anew, be it the same or another: a few short steps, and last the "
        "result as \\boxed{number}.",
        "{question}\n\n{talk}",
        between="\n\n",
        nothing="(no answers)",
    ),
    own="Your answer:\n{answer}",
    other="Answer of another, number {number}:\n{answer}",
)
"""For instruction-tuned models."""

POCKET = DebateWording(pocket_page("Answer:"), pocket_page("Answer:"), "You: {answer}", "Partner: {answer}")
"""For the pocket model, which knows one partner only."""

WORDINGS = {"plain": PLAIN, "pocket": POCKET}


@dataclass(frozen=True, slots=True)
class Debate(Protocol):
    """`vote` makes the score of the most common answer the team reward, in place of the mean score; `final_tokens` caps each
    answer; `answer` reads the answer out of a text.

    In a debate the answers of the last round are final, and earlier ones are graded only. With `deliver=False` every answer is
    final, and each has a seat of its own: the second draw of copy 0 of three is "copy 3", in the role of all others; so the team
    reward, credit and measures need no rule for this case. First answers have the same seats, turns and prompts with and without
    delivery, hence the same noise: an untrained debate and its vote begin alike.
    """

    copies: int
    rounds: int
    deliver: bool
    vote: bool
    final_tokens: int
    wording: DebateWording
    answer: Answer

    @property
    def seats(self) -> tuple[Seat, ...]:
        rounds = 1 if self.deliver else self.rounds
        return tuple(self._seat(number, copy) for number in range(rounds) for copy in range(self.copies))

    def _seat(self, number: int, copy: int) -> Seat:
        return f"copy {copy if self.deliver else number * self.copies + copy}"

    async def play(self, task: Task, table: Table) -> None:
        first = self.wording.first.view(task)
        if not self.deliver:
            await table.say_all([Ask(seat, first, self.final_tokens, final=True, heard=()) for seat in self.seats])
            return
        latest: tuple[Message, ...] = ()
        for number in range(self.rounds):
            latest = await table.say_all(
                [
                    Ask(
                        seat,
                        self.again_view(task, copy, latest) if latest else first,
                        self.final_tokens,
                        final=number == self.rounds - 1,
                        graded=True,
                        heard=tuple(message.turn for message in latest),
                    )
                    for copy, seat in enumerate(self.seats)
                ]
            )

    def again_view(self, task: Task, copy: int, latest: Sequence[Message]) -> View:
        """The prompt of a copy that revises: its own latest answer, then those of the next copies in turn. A hidden answer is left
        out for all but the copy that gave it."""
        words = self.wording
        others = [latest[(copy + step) % self.copies] for step in range(1, self.copies)]
        shown = [message.text for message in others if not message.hidden]
        lines = [words.other.format(number=number, answer=text) for number, text in enumerate(shown, start=1)]
        return words.again.view(task, [words.own.format(answer=latest[copy].text), *lines])

    def caps(self) -> Mapping[str, int]:
        return {"protocol.final_tokens": self.final_tokens}

    def reward(self, finals: Sequence[Message]) -> float:
        if self.vote:
            return vote_score(finals, self.answer)
        return sum(message.score or 0.0 for message in finals) / len(finals)

    def measures(self, episodes: Sequence[Episode], tasks: Mapping[str, Task]) -> dict[str, Any]:
        """first_score, final_score: mean score of the first and of the last round's answers; vote_score: mean score of the vote of
        the final answers. Shares of copies: changed, whose last answer is another than their first (to have none is an answer of
        its own); mended, whose last is right and first was not; spoiled, the reverse. Episodes with a grading error do not count.

        Without delivery a copy's first and last answers are two draws that know nothing of each other, so changed, mended and
        spoiled show what chance alone does: subtract them before reading anything into those of a debate.
        """
        graded = [episode.messages for episode in episodes if not episode.errors]
        pairs = [pair for all_ in graded for pair in zip(all_[: self.copies], all_[-self.copies :], strict=True)]
        return {
            "first_score": mean(first.score or 0.0 for first, _ in pairs),
            "final_score": mean(last.score or 0.0 for _, last in pairs),
            "vote_score": mean(vote_score([m for m in messages if m.final], self.answer) for messages in graded),
            "changed": mean(self.answer(first.text) != self.answer(last.text) for first, last in pairs),
            "mended": mean(right(last) and not right(first) for first, last in pairs),
            "spoiled": mean(right(first) and not right(last) for first, last in pairs),
        }
