"""What a cast is: who plays which seat in which episode."""

from collections.abc import Mapping
from typing import Protocol as Interface

from coterie.types import Player, Seat


class Cast(Interface):
    def players(self, seats: tuple[Seat, ...], index: int) -> Mapping[Seat, Player]:
        """The player of each seat in episode `index` of a group."""
        ...
