"""What a cast is: who plays which seat in which episode."""

from collections.abc import Mapping, Sequence
from typing import Any
from typing import Protocol as Interface

from coterie.types import Episode, Player, Seat


class Cast(Interface):
    def players(self, seats: tuple[Seat, ...], index: int, noise: tuple[str | int, ...] = ()) -> Mapping[Seat, Player]:
        """The player of each seat in episode `index` of a group. `noise` names the random stream of a cast that draws by chance."""
        ...

    @property
    def partners(self) -> Sequence[str]:
        """The players beside the policy that must be there before the first episode, as they are written in a configuration."""
        ...

    def observe(self, episodes: Sequence[Episode]) -> None:
        """Learn how a step's episodes went."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What must be kept in a checkpoint, ready for JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...
