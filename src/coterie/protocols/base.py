"""What a protocol is: a coroutine over a table.

A protocol decides who speaks when and what each seat sees. It never sees token ids, models or other episodes; the table that it
is given never knows its roles. `play` drives many of these coroutines at once and batches what they ask for.
"""

from collections.abc import Mapping
from typing import Protocol as Interface

from coterie.types import Message, Seat, Task, View


class Table(Interface):
    """Where one episode is played."""

    @property
    def messages(self) -> tuple[Message, ...]:
        """All messages said so far in this episode, in the order in which they were asked for."""
        ...

    async def say(self, seat: Seat, view: View, *, max_tokens: int, final: bool = False) -> Message:
        """Ask whoever sits in `seat` to speak. A `final` message carries the seat's answer and is graded."""
        ...


class Protocol(Interface):
    """One way of talking. Instances are immutable and shared by all episodes."""

    @property
    def seats(self) -> tuple[Seat, ...]:
        """Everybody who may speak, in the order of their first turns."""
        ...

    async def play(self, task: Task, table: Table) -> None:
        """Play one episode: await `table.say` for each message; return when the episode is over."""
        ...

    def check(self, task: Task) -> str | None:
        """Why this task cannot be played (for example: no facts for a seat), or None."""
        ...

    def caps(self) -> Mapping[str, int]:
        """The token cap of each kind of message, by its configuration key, to be checked against the model's context."""
        ...
