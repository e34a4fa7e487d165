"""pool: in a share of the episodes one seat is played by a member of a population: partners from outside, and frozen copies of the
policy as it was (fictitious self-play).

A policy that only meets its present self may forget how to work with its past selves, and so drift in circles. By default members
are drawn uniformly. With `by_result`, a member is drawn in proportion to 1 minus the mean team reward with it over its last
`WINDOW` episodes: prioritised fictitious self-play (Vinyals et al. 2019, AlphaStar, f(x) = 1 - x), read for a game that is won or
lost together. There the hardest opponent teaches most; here the worst team-mate may simply be hopeless, and would fill the episodes
with failure. So no member is drawn less than `LEAST` times as often as one that always fails, and "uniform" is the default.
A member not met yet counts as one that fails.

Which episodes have a guest depends on the index alone; which seat it takes, on the task's place in the step; which member it is, on
a stream named by the task and on the results up to the step before. So all guests of a task's group are one member in one seat, and
have each other to be compared with. Results are state, and kept in checkpoints.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any

from coterie.casts.base import check_seats, guests, player_name, turn_of
from coterie.seeding import stream
from coterie.types import POLICY, Episode, Player, Seat

WINDOW = 64
"""Episodes with a member that its mean reward is taken over: a few steps' worth, since the policy changes meanwhile."""
LEAST = 0.1


class Pool:
    """`takes`: the seats that a member may take, one a task, in turn. `members`: as written in a configuration.
    Every `snapshot_every` steps the policy joins as "step-<k>"; of these the `largest` newest stay."""

    def __init__(
        self,
        *,
        share: float,
        takes: tuple[Seat, ...],
        members: tuple[str, ...],
        snapshot_every: int | None,
        largest: int,
        by_result: bool,
        seed: int,
    ):
        self._share, self._takes, self._by_result, self._seed = share, takes, by_result, seed
        self._every, self._largest = snapshot_every, largest
        self._partners = tuple(members)
        self._names = tuple(player_name(member) for member in members)
        self._steps = 0
        self._snapshots: list[Player] = []
        self._results: dict[Player, deque[float]] = defaultdict(lambda: deque(maxlen=WINDOW))

    @property
    def partners(self) -> Sequence[str]:
        return self._partners

    @property
    def snapshots(self) -> Sequence[Player]:
        return tuple(self._snapshots)

    @property
    def snapshot_every(self) -> int | None:
        return self._every

    def players(self, seats: tuple[Seat, ...], index: int, noise: tuple[str | int, ...] = ()) -> Mapping[Seat, Player]:
        check_seats("cast.seats", self._takes, seats, together=False)
        by_seat = dict.fromkeys(seats, POLICY)
        members = (*self._names, *self._snapshots)
        if members and guests(index + 1, self._share) > guests(index, self._share):
            weights = [self.weight(member) for member in members]
            chosen = stream(self._seed, "cast", *noise).choice(len(members), p=[w / sum(weights) for w in weights])
            by_seat[self._takes[turn_of(noise) % len(self._takes)]] = members[chosen]
        return by_seat

    def weight(self, member: Player) -> float:
        """How often a member is drawn, up to a factor."""
        results = self._results.get(member)
        if not self._by_result or not results:
            return 1.0
        return max(LEAST, 1.0 - sum(results) / len(results))

    def observe(self, episodes: Sequence[Episode]) -> None:
        for episode in episodes:
            for player in set(episode.cast.values()) - {POLICY}:
                if episode.reward is not None:
                    self._results[player].append(episode.reward)
        self._steps += 1
        if self._every and self._steps % self._every == 0:
            self._snapshots.append(f"step-{self._steps}")
            for gone in self._snapshots[: -self._largest]:
                self._results.pop(gone, None)
            del self._snapshots[: -self._largest]

    def state(self) -> Mapping[str, Any]:
        results = {player: list(rewards) for player, rewards in self._results.items()}
        return {"steps": self._steps, "snapshots": list(self._snapshots), "results": results}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._steps, self._snapshots = state["steps"], list(state["snapshots"])
        self._results.clear()
        for player, rewards in state["results"].items():
            self._results[player].extend(rewards)
