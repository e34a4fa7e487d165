"""What a protocol is: a coroutine over a table.

A protocol decides who speaks when and what each seat sees. It never sees token ids, models or other episodes; the table that it
is given never knows its roles. `play` drives many of these coroutines at once and batches what they ask for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

from coterie.types import Episode, Message, Seat, Task, View


@dataclass(frozen=True, slots=True)
class Ask:
    """What a table is asked for: that whoever sits in `seat` speaks, given `view`.

    A `final` message carries the seat's answer and is graded; `graded` asks for a grade of another message too (`Message.score`).
    `heard` are the turns of the messages that `view` was made from, the seat's own included; None stands for all before it. Credit
    rules and replays go by it, so it must be true.
    """

    seat: Seat
    view: View
    max_tokens: int
    final: bool = False
    graded: bool = False
    heard: tuple[int, ...] | None = None


class Table(Interface):
    """Where one episode is played."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages said so far in this episode, in the order in which they were asked for."""
        ...

    async def say(
        self,
        seat: Seat,
        view: View,
        *,
        max_tokens: int,
        final: bool = False,
        graded: bool = False,
        heard: tuple[int, ...] | None = None,
    ) -> Message:
        """Ask one seat to speak; see `Ask`."""
        ...

    async def say_all(self, asks: Sequence[Ask]) -> tuple[Message, ...]:
        """Ask several seats at once, none of whom hears the others; returns when all have spoken, in the order of the asks."""
        ...


class Protocol:
    """One way of talking. Instances are immutable and shared by all episodes.

    In a replay a message may be `hidden`: a view for another seat must then be what it would be had that message not been said.
    """

    __slots__ = ()

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Everybody who may speak, in the order of their first turns."""
        raise NotImplementedError

    async def play(self, task: Task, table: Table) -> None:
        """Play one episode: await `table.say` for each message; return when the episode is over."""
        raise NotImplementedError

    @property
    def fact_seats(self) -> tuple[Seat, ...]:
        """The seats among which a problem's facts are dealt (`Task.private`); empty when all are given the whole problem."""
        return ()

    def check(self, task: Task) -> str | None:
        """Why this task cannot be played (for example: no facts for a seat), or None."""
        missing = [seat for seat in self.fact_seats if not task.private.get(seat)]
        return f"has no facts for seat {', '.join(missing)}" if missing else None

    def caps(self) -> Mapping[str, int]:
        """The token cap of each kind of message, by its configuration key, to be checked against the model's context."""
        return {}

    def reward(self, finals: Sequence[Message]) -> float:
        """The team reward, from every seat's last final message, all of them graded: the mean of their scores."""
        return sum(message.score or 0.0 for message in finals) / len(finals)

    def measures(self, episodes: Sequence[Episode], tasks: Mapping[str, Task]) -> dict[str, Any]:
        """What this protocol measures beside the measures of all talk (`coterie.measures`), ready for JSON; None where nothing
        defines a measure."""
        return {}
