"""chat: seats that each hold a part of the facts take turns to write one message.

The published experiment (talk-to-solve) plays two seats in the order A B A B; here any number of seats and any order works. Each
turn's prompt is rebuilt from scratch as one user message: the seat's own facts, the question, the conversation so far, and what
to write now. A seat's last turn is its final message, which carries its answer.

Source: talk-to-solve of whilehq/whileai-sdk; the idea of training every turn on the team's outcome: MAPoRL, arXiv:2502.18439.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.protocols.base import Protocol, Table
from coterie.types import Message, Seat, Task, View


@dataclass(frozen=True, slots=True)
class ChatWording:
    """Every word that a chat prompt adds to the task. `body` is a format string over {facts}, {ask}, {talk} and {instruction};
    the message text itself is inserted last and is never interpreted."""

    system: str
    body: str
    own: str
    partner: str
    nothing: str
    undelivered: str
    say: str
    answer: str


PLAIN = ChatWording(
    system="You and a partner are solving one problem together. Each of you was told different facts and neither has all of them. "
    "You can only reach each other by messages. Keep your messages short and useful.",
    body="Facts that you know:\n{facts}\n\nQuestion: {ask}\n\nConversation so far:\n{talk}\n\n{instruction}",
    own="You",
    partner="Partner",
    nothing="(nothing yet)",
    undelivered="(no message)",
    say="Write your next message to your partner.",
    answer="Write your last message. Work out the answer to the question and end with the final number as \\boxed{number}.",
)
"""For instruction-tuned models."""

POCKET = ChatWording(
    system="",
    body="Facts: {facts}\nQuestion: {ask}\n{talk}\n{instruction}",
    own="You",
    partner="Partner",
    nothing="(nothing yet)",
    undelivered="(no message)",
    say="Write:",
    answer="Answer:",
)
"""For the pocket model, which was pre-trained on exactly this form."""

WORDINGS = {"plain": PLAIN, "pocket": POCKET}


@dataclass(frozen=True, slots=True)
class Chat(Protocol):
    """`order` names who speaks at each turn; `message_tokens` and `final_tokens` cap a message and a seat's last message.

    With `deliver=False` every partner line is replaced by a placeholder: the same episode with the channel cut, which is the
    baseline that shows what the talk itself is worth (own lines stay, as a private scratchpad).
    """

    order: tuple[Seat, ...]
    message_tokens: int
    final_tokens: int
    deliver: bool
    wording: ChatWording

    @property
    def seats(self) -> tuple[Seat, ...]:
        return tuple(dict.fromkeys(self.order))

    @property
    def fact_seats(self) -> tuple[Seat, ...]:
        return self.seats

    async def play(self, task: Task, table: Table) -> None:
        for turn, seat in enumerate(self.order):
            final = seat not in self.order[turn + 1 :]
            await table.say(
                seat,
                self.view(task, seat, table.messages, final),
                max_tokens=self.final_tokens if final else self.message_tokens,
                final=final,
                heard=tuple(m.turn for m in table.messages if self.deliver or m.seat == seat),
            )

    def view(self, task: Task, seat: Seat, messages: tuple[Message, ...], final: bool) -> View:
        """The prompt of `seat` after `messages`: a pure function, so that a prompt can be rebuilt with a message hidden."""
        words = self.wording
        body = words.body.format(
            facts=" ".join(task.private[seat]),
            ask=task.ask,
            talk="\n".join(self._line(seat, message) for message in messages) or words.nothing,
            instruction=words.answer if final else words.say,
        )
        system = (("system", words.system),) if words.system else ()
        return View((*system, ("user", body)))

    def _line(self, seat: Seat, message: Message) -> str:
        words = self.wording
        if message.seat == seat:
            return f"{words.own}: {message.text}"
        speaker = words.partner if len(self.seats) == 2 else f"{words.partner} {message.seat}"
        return f"{speaker}: {message.text if self.deliver and not message.hidden else words.undelivered}"

    def caps(self) -> Mapping[str, int]:
        return {"protocol.message_tokens": self.message_tokens, "protocol.final_tokens": self.final_tokens}
