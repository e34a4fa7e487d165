"""What a credit rule is: a pure function that decides whose reward pays which message.

A rule that needs no further play is a function from a group to advantages, made a rule by `plain`. A rule that asks "how would this
episode have gone without that message?" names its probes; `play` answers them with replays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from coterie.types import Episode, Group, Probe

Advantages = list[list[float | None]]
"""`[e][m]` belongs to message `m` of `group.episodes[e]`, in reward units. 0.0 exactly: not trained, but in the batch, so that the
loss is divided by its tokens too. None: not in the batch."""

Replays = Mapping[Probe, Episode]
"""The replay of each probe. Messages taken over are equal to those of the episode; others were sampled anew."""


class CreditRule(Interface):
    def probes(self, group: Group) -> Sequence[Probe]:
        """The replays that the rule needs of this group; none for most rules."""
        ...

    def advantages(self, group: Group, replays: Replays) -> Advantages: ...


@dataclass(frozen=True, slots=True)
class Plain:
    """A rule without probes."""

    of: Callable[[Group], Sequence[Sequence[float | None]]]

    def probes(self, group: Group) -> Sequence[Probe]:
        return ()

    def advantages(self, group: Group, replays: Replays) -> Advantages:
        return [list(of_episode) for of_episode in self.of(group)]


plain = Plain
