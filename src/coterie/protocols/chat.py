"""chat: seats that each hold a part of the facts take turns to write one message.

The published experiment (talk-to-solve) plays two seats in the order A B A B; here any number of seats and any order works. A
seat's last turn is its final message, which carries its answer.

Each turn's prompt is rebuilt from scratch as one user message: the seat's own facts, the question, the conversation so far, and
what to write now. With `history="dialogue"` it is a chat with the seat as the assistant: facts and question stand in the first user
message, what the others said since the seat's last turn in later ones, and its own messages are the assistant's, with the ids that
were sampled. Each of its prompts then begins with the one before and what it said there, so that the learner computes both at once
(`rows.pack`). Made from text again, ids may change under the log-probabilities (TRL issue 5224), and templates that drop thoughts
from earlier messages break the chain (verl issue 6854): with those, dialogue is refused.

Source: talk-to-solve of whilehq/whileai-sdk; the idea of training every turn on the team's outcome: MAPoRL, arXiv:2502.18439.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from coterie.protocols.base import Protocol, Table
from coterie.types import Message, Seat, Task, View


@dataclass(frozen=True, slots=True)
class ChatWording:
    """Every word that a chat prompt adds to the task. `body` is a format string over {facts}, {ask}, {talk} and {instruction}, and
    so is `further` over {talk} and {instruction}: the later user messages of a dialogue. The message text itself is inserted last
    and is never interpreted. `partner` is what the other of two seats is called, `partners`, over {seat}, one of several;
    `system_many` and `say_many` are said to three seats or more in place of `system` and `say`."""

    system: str
    system_many: str
    body: str
    further: str
    own: str
    partner: str
    partners: str
    nothing: str
    undelivered: str
    say: str
    say_many: str
    answer: str


PLAIN = ChatWording(
    system="You and a partner are solving one problem together. Each of you was told different facts and neither has all of them. "
    "You can only reach each other by messages. Keep your messages short and useful.",
    system_many="You and your partners are solving one problem together. Each of you was told different facts and nobody has all "
    "of them. You can only reach each other by messages, which all of you read. Keep your messages short and useful.",
    body="Facts that you know:\n{facts}\n\nQuestion: {ask}\n\nConversation so far:\n{talk}\n\n{instruction}",
    further="{talk}\n\n{instruction}",
    own="You",
    partner="Partner",
    partners="Partner {seat}",
    nothing="(nothing yet)",
    undelivered="(no message)",
    say="Write your next message to your partner.",
    say_many="Write your next message to your partners.",
    answer="Write your last message. Work out the answer to the question and end with the final number as \\boxed{number}.",
)
"""For instruction-tuned models."""

POCKET = ChatWording(
    system="",
    system_many="",
    body="Facts: {facts}\nQuestion: {ask}\n{talk}\n{instruction}",
    further="{talk}\n{instruction}",
    own="You",
    partner="Partner",
    partners="Partner",
    nothing="(nothing yet)",
    undelivered="(no message)",
    say="Write:",
    say_many="Write:",
    answer="Answer:",
)
"""For the pocket model, which was pre-trained on exactly this form: it knows one partner only, and no dialogue."""

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
    history: Literal["rebuilt", "dialogue"] = "rebuilt"

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
        return (self._dialogue if self.history == "dialogue" else self._rebuilt)(task, seat, messages, final)

    def _rebuilt(self, task: Task, seat: Seat, messages: tuple[Message, ...], final: bool) -> View:
        return View((*self._system, ("user", self._opening(task, seat, messages, final))))

    def _dialogue(self, task: Task, seat: Seat, messages: tuple[Message, ...], final: bool) -> View:
        """Every user message ends with the instruction that it ended with when it was new, and only a seat's last is final."""
        words = self.wording
        mine = [place for place, message in enumerate(messages) if message.seat == seat]
        starts, ends = [0, *(place + 1 for place in mine)], [*mine, len(messages)]
        chat: list[tuple[str, str]] = [*self._system]
        sampled: list[tuple[int, tuple[int, ...]]] = []
        for start, end in zip(starts, ends, strict=True):
            last = final and end == len(messages)
            if start == 0:
                chat.append(("user", self._opening(task, seat, messages[:end], last)))
            else:
                talk, instruction = self._talk(seat, messages[start:end]), self._instruction(last)
                chat.append(("user", words.further.format(talk=talk, instruction=instruction)))
            if end < len(messages):
                sampled.append((len(chat), messages[end].ids))
                chat.append(("assistant", messages[end].text))
        return View(tuple(chat), tuple(sampled))

    @property
    def _system(self) -> tuple[tuple[str, str], ...]:
        words = self.wording.system if len(self.seats) == 2 else self.wording.system_many
        return (("system", words),) if words else ()

    def _instruction(self, final: bool) -> str:
        words = self.wording
        return words.answer if final else (words.say if len(self.seats) == 2 else words.say_many)

    def _opening(self, task: Task, seat: Seat, messages: Iterable[Message], final: bool) -> str:
        words = self.wording
        return words.body.format(
            facts=" ".join(task.private[seat]),
            ask=task.ask,
            talk=self._talk(seat, messages),
            instruction=self._instruction(final),
        )

    def _talk(self, seat: Seat, messages: Iterable[Message]) -> str:
        return "\n".join(self._line(seat, message) for message in messages) or self.wording.nothing

    def _line(self, seat: Seat, message: Message) -> str:
        words = self.wording
        if message.seat == seat:
            return f"{words.own}: {message.text}"
        speaker = words.partner if len(self.seats) == 2 else words.partners.format(seat=message.seat)
        return f"{speaker}: {message.text if self.deliver and not message.hidden else words.undelivered}"

    def caps(self) -> Mapping[str, int]:
        return {"protocol.message_tokens": self.message_tokens, "protocol.final_tokens": self.final_tokens}
