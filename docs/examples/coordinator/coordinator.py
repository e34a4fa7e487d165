"""coordinator: two helpers hold the facts and write to a coordinator, who holds none and alone answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from coterie.kinds import About, Config, register
from coterie.protocols.base import Ask, Protocol, Table
from coterie.types import Message, Seat, Task, View

HELPERS: tuple[Seat, ...] = ("A", "B")


class CoordinatorConfig(Config):
    """Two helpers write to a coordinator, who has no facts and alone answers."""

    kind: Literal["coordinator"]
    message_tokens: int = Field(default=48, ge=1)
    """Cap of a helper's message, in tokens."""
    final_tokens: int = Field(default=64, ge=1)
    """Cap of the coordinator's answer, in tokens."""
    deliver: bool = True
    """False cuts the channel: the coordinator sees a placeholder in place of each message."""


@dataclass(frozen=True, slots=True)
class Coordinator(Protocol):
    message_tokens: int
    final_tokens: int
    deliver: bool

    @property
    def seats(self) -> tuple[Seat, ...]:
        return (*HELPERS, "coordinator")

    @property
    def fact_seats(self) -> tuple[Seat, ...]:
        return HELPERS  # the facts are dealt among these; the coordinator gets none

    async def play(self, task: Task, table: Table) -> None:
        notes = await table.say_all([Ask(seat, self.helper(task, seat), self.message_tokens, heard=()) for seat in HELPERS])
        await table.say(
            "coordinator",
            self.coordinator(task, notes),
            max_tokens=self.final_tokens,
            final=True,
            heard=tuple(note.turn for note in notes) if self.deliver else (),
        )

    def helper(self, task: Task, seat: Seat) -> View:
        facts = " ".join(task.private[seat])
        return View((("user", f"Facts: {facts}\nQuestion: {task.ask}\n(nothing yet)\nWrite:"),))

    def coordinator(self, task: Task, notes: tuple[Message, ...]) -> View:
        heard = [note.text if self.deliver and not note.hidden else "(no message)" for note in notes]
        lines = "\n".join(f"Partner: {text}" for text in heard)
        return View((("user", f"Facts: \nQuestion: {task.ask}\n{lines}\nAnswer:"),))

    def caps(self) -> Mapping[str, int]:
        return {"protocol.message_tokens": self.message_tokens, "protocol.final_tokens": self.final_tokens}


def make(config: CoordinatorConfig, about: About) -> Coordinator:
    return Coordinator(config.message_tokens, config.final_tokens, config.deliver)


register("protocol", CoordinatorConfig, make)
