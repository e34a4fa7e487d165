"""self_play: the policy in training sits in every seat. And `FixedCast`, which evaluation uses for cross-play."""

from collections.abc import Mapping
from dataclasses import dataclass

from coterie.types import POLICY, Player, Seat


@dataclass(frozen=True, slots=True)
class SelfPlay:
    def players(self, seats: tuple[Seat, ...], index: int) -> Mapping[Seat, Player]:
        return dict.fromkeys(seats, POLICY)


@dataclass(frozen=True, slots=True)
class FixedCast:
    """The same player in a seat for every episode."""

    by_seat: Mapping[Seat, Player]

    def players(self, seats: tuple[Seat, ...], index: int) -> Mapping[Seat, Player]:
        return {seat: self.by_seat[seat] for seat in seats}
