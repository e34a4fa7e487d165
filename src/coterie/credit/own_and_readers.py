"""A note is paid for the answer that it holds and for what its readers made of it."""

from dataclasses import dataclass

from coterie.credit.baselines import above_finals, above_mean, graded, pay
from coterie.credit.readers_mean import above_readers
from coterie.types import CoterieError, Group, Message


@dataclass(frozen=True, slots=True)
class OwnAndReaders:
    """A note: its own score minus the mean score of all notes of the pool, plus `weight` times its credit by `readers_mean`. A
    final message: as by `zero_notes`.

    board-writers proposes it in its closing notes: the readers' part alone is nearly flat, and a writer who solves the problem
    helps most readers. The two parts have a baseline each, so neither carries the problem's difficulty.

    Known failure: the own part is dense and the readers' part noisy, so a small `weight` trains writers to answer rather than to
    explain; a note is then a vote. Notes must be graded by the protocol; raises CoterieError when they are not.
    """

    weight: float

    def __call__(self, group: Group) -> list[list[float | None]]:
        finals, readers = above_finals(group), above_readers(group)
        own = above_mean(_own_score(m) for e in graded(group.pool) for m in e.messages if not m.final)
        return pay(group, lambda e, m: finals(m) if m.final else own(_own_score(m)) + self.weight * readers(e, m))


def _own_score(note: Message) -> float:
    if note.score is None:
        raise CoterieError(
            f'credit.kind = "own_and_readers" pays a note for its own answer, but this protocol.kind does not grade the message of '
            f'seat {note.seat} (turn {note.turn}); use protocol.kind = "board" or "debate", or credit.kind = "readers_mean"'
        )
    return note.score
