"""mixed_partners: in a share of each group's episodes, some seats are played by a partner that is not in training.

Copies that only ever meet themselves agree on conventions that no stranger knows (Other-Play, 2003.02979; ad hoc teamwork). Playing
with strangers some of the time asks for talk that works with them too. Which episodes they are is a function of the index alone, so
that groups are alike and a baseline for each kind of partner (credit.kind = "per_partner") has enough of both; with one baseline
for all, the advantage partly measures which partner was drawn (weakness W11 of the published talk-methods).

Of the first n episodes floor(n x share) have a stranger. The published run gave the last two of four to strangers; here they
alternate with the others, so that a draw which plays a group in rounds, and keeps some, meets both kinds in each. With `alternate`
the seats are taken in turn by task, not by episode: the strangers of one task all sit in one seat, and have each other to be
compared with.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from coterie.casts.base import check_seats, guests, player_name, turn_of
from coterie.casts.self_play import Stateless
from coterie.types import POLICY, Player, Seat


@dataclass(frozen=True)
class MixedPartners(Stateless):
    """`takes`: the seats that the partner takes; with `alternate` one of them a task, in turn, else all at once."""

    share: float
    takes: tuple[Seat, ...]
    alternate: bool
    partner: str

    @property
    def partners(self) -> Sequence[str]:
        return (self.partner,)

    def players(self, seats: tuple[Seat, ...], index: int, noise: tuple[str | int, ...] = ()) -> Mapping[Seat, Player]:
        check_seats("cast.seats", self.takes, seats, together=not self.alternate)
        by_seat = dict.fromkeys(seats, POLICY)
        if guests(index + 1, self.share) > guests(index, self.share):
            taken = (self.takes[turn_of(noise) % len(self.takes)],) if self.alternate else self.takes
            by_seat.update(dict.fromkeys(taken, player_name(self.partner)))
        return by_seat
