"""What a cast is: who plays which seat in which episode."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from typing import Protocol as Interface
from urllib.parse import urlsplit

from coterie.types import BASE, CoterieError, Episode, Player, Seat


class Cast(Interface):
    def players(self, seats: tuple[Seat, ...], index: int, noise: tuple[str | int, ...] = ()) -> Mapping[Seat, Player]:
        """The player of each seat in episode `index` of a group. `noise` names the task: what a cast draws by chance, it draws from
        a stream of that name, once for all episodes of the group."""
        ...

    @property
    def partners(self) -> Sequence[str]:
        """The players beside the policy that must be there before the first episode, as they are written in a configuration."""
        ...

    @property
    def snapshots(self) -> Sequence[Player]:
        """The frozen copies of the policy that this cast plays with. A name that is new after `observe` stands for the policy as it
        is then; one that is gone may be forgotten."""
        ...

    def observe(self, episodes: Sequence[Episode]) -> None:
        """Learn how a step's episodes went; called once a step, after the policy has learned from them."""
        ...

    def state(self) -> Mapping[str, Any]:
        """What must be kept in a checkpoint, ready for JSON."""
        ...

    def restore(self, state: Mapping[str, Any]) -> None: ...


def player_name(partner: str) -> Player:
    """The player that a configuration's `partner` names: "base", or a name made from a folder or an address that is safe in files,
    reports and as the name of an adapter: letters, digits, - and _ only.

    Of a folder, names that say nothing (adapter, checkpoints, step-…) are passed over: "runs/x/chat-seed18" and the adapter below
    it are both "chat-seed18". A name that could mean something else (policy, default, train) gets "player-" before it.
    """
    if partner == BASE:
        return BASE
    if is_address(partner):
        where = urlsplit(partner)
        if not where.fragment or not where.hostname:
            raise CoterieError(f"partner {partner}: name the model after a #, as in http://host:port/v1#model")
        port = f"-{where.port}" if where.port else ""
        raw = f"{where.fragment.rsplit('/', 1)[-1]}-at-{where.hostname}{port}"
    else:
        parts = [part for part in PurePath(partner).parts if not re.fullmatch(r"adapter|checkpoints|step-\d+|[./\\]+", part)]
        raw = parts[-1] if parts else ""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", raw).strip("-")
    return name if re.search(r"[0-9-]", name) else f"player-{name}"


def is_address(partner: str) -> bool:
    return partner.startswith(("http://", "https://"))


def turn_of(noise: Sequence[str | int]) -> int:
    """Whose turn it is by the numbers in a stream's name (step, and the task's place in it): seats are taken in turn by task."""
    return sum(part for part in noise if isinstance(part, int))


def guests(index: int, share: float) -> int:
    """Of the first `index` episodes of a group, how many have a guest: the floor of index x share."""
    return math.floor(index * share + 1e-9)  # in floats, 100 x 0.29 is a little less than 29


def check_seats(key: str, takes: Sequence[Seat], seats: Sequence[Seat], together: bool) -> None:
    """Make sure that guests sit at seats that exist, and, when they take all theirs at once, that one is left for the policy."""
    for seat in takes:
        if seat not in seats:
            raise CoterieError(f"{key}: there is no seat {seat}; this protocol has {', '.join(seats)}")
    if set(seats) <= set(takes if together else takes[:1]):
        raise CoterieError(f"{key}: the partner would take every seat and leave nothing to train; leave one out")
