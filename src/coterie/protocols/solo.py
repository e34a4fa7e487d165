"""solo: one copy is given the whole problem and answers.

The baseline of every way of talking (team-talk of whilehq/whileai-sdk, plain arm), and the protocol of its reinforce-ada.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from coterie.protocols.base import Protocol, Table
from coterie.protocols.pages import Page, pocket_page
from coterie.types import Seat, Task

PLAIN = Page(
    system="Solve the problem that the user gives you. Reason in a few short steps, then finish with the result as "
    "\\boxed{number}.",
    body="{question}",
)
"""For instruction-tuned models."""

TAGGED = Page(
    system="Solve the problem that the user gives you. Reason in a few short steps if you must, then write the final answer, and "
    "nothing else, between <answer> and </answer>.",
    body="{question}",
)
"""For problems whose answers are text of many forms, which reasoning-gym's scorers look for between these tags."""

WORDINGS = {"plain": PLAIN, "tagged": TAGGED, "pocket": pocket_page("Answer:")}


@dataclass(frozen=True, slots=True)
class Solo(Protocol):
    """`final_tokens` caps the answer."""

    seat: ClassVar[Seat] = "solo"
    final_tokens: int
    wording: Page

    @property
    def seats(self) -> tuple[Seat, ...]:
        return (self.seat,)

    async def play(self, task: Task, table: Table) -> None:
        await table.say(self.seat, self.wording.view(task), max_tokens=self.final_tokens, final=True, heard=())

    def caps(self) -> Mapping[str, int]:
        return {"protocol.final_tokens": self.final_tokens}
