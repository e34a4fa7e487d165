"""What a node knows between its rounds, and between the halves of one."""

from dataclasses import dataclass, field

from coterie.swarm.foreign import Foreign
from coterie.swarm.outbox import Sent
from coterie.swarm.sharing import Past
from coterie.train import Drawn
from coterie.types import Group


@dataclass(slots=True)
class State:
    """What a checkpoint keeps of a node beside the learner."""

    round: int = 0
    """The next one."""
    taken: int = 0
    """How many own tasks were played: the place in the walk through them."""
    past: list[Past] = field(default_factory=list)
    drawn: dict[str, int] = field(default_factory=dict)
    """How often each group of the pool was learned from."""
    groups_sent: int = 0
    bytes_sent: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """The first half of a round."""

    external: int
    """J as the policy asked for it."""
    drawn: Drawn
    groups: list[Group]
    foreign: list[Foreign] | None
    """Where they are drawn before own tasks are played (`fill`)."""
    sent: Sent
    errors: int
    """Of the exchange, before this round."""
    seconds: float
