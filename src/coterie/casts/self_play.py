"""self_play: the policy in training sits in every seat. And `FixedCast`, which evaluation uses for cross-play."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from coterie.types import POLICY, Episode, Player, Seat


class Stateless:
    """A cast that has nothing to learn or keep."""

    @property
    def partners(self) -> Sequence[str]:
        return ()

    @property
    def snapshots(self) -> Sequence[Player]:
        return ()

    def observe(self, episodes: Sequence[Episode]) -> None:
        pass

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        pass


@dataclass(frozen=True)
class SelfPlay(Stateless):
    def players(self, seats: tuple[Seat, ...], index: int, noise: tuple[str | int, ...] = ()) -> Mapping[Seat, Player]:
        return dict.fromkeys(seats, POLICY)


@dataclass(frozen=True)
class FixedCast(Stateless):
    """The same player in a seat for every episode."""

    by_seat: Mapping[Seat, Player]

    def players(self, seats: tuple[Seat, ...], index: int, noise: tuple[str | int, ...] = ()) -> Mapping[Seat, Player]:
        return {seat: self.by_seat[seat] for seat in seats}
