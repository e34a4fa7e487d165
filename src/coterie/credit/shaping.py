"""Adds to any rule a price on length and a bonus for ending by oneself."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.credit.base import Advantages, CreditRule, Replays
from coterie.credit.baselines import above_mean, role_of
from coterie.types import POLICY, Group, Message, Probe


@dataclass(frozen=True, slots=True)
class Shaped:
    """The advantages of `rule`, plus (stop_bonus if the message ended by itself, else 0) - length_cost * tokens / 100, minus the
    mean of that quantity over the messages of the same role and finality in the group's kept episodes.

    Published chats grew to their cap and were delivered cut in mid-formula, since nothing spoke against it. The mean is taken
    among like messages, so that an answer is not charged for being longer than a note, nor one role for another.

    It changes what is optimal (it is no potential-based shaping), so keep both small beside the reward. Known failure: a group
    whose rewards are all equal still has this signal, and where most groups are such, messages shrink to nothing before the team
    has learned to use them.

    Left as they are: messages that the rule leaves out (None), messages of other players than the policy, and episodes whose
    grading failed; they are in no mean either.
    """

    rule: CreditRule
    length_cost: float
    stop_bonus: float

    def probes(self, group: Group) -> Sequence[Probe]:
        return self.rule.probes(group)

    def advantages(self, group: Group, replays: Replays) -> Advantages:
        advantages = self.rule.advantages(group, replays)
        trained = [
            (e, m, message)
            for e, episode in enumerate(group.episodes)
            for m, message in enumerate(episode.messages)
            if episode.reward is not None and message.player == POLICY and advantages[e][m] is not None
        ]
        alike: defaultdict[tuple[str, bool], list[float]] = defaultdict(list)
        for _, _, message in trained:
            alike[_kind(message)].append(self._price(message))
        above = {kind: above_mean(prices) for kind, prices in alike.items()}
        shaped = [list(of_episode) for of_episode in advantages]
        for e, m, message in trained:
            shaped[e][m] = (shaped[e][m] or 0.0) + above[_kind(message)](self._price(message))
        return shaped

    def _price(self, message: Message) -> float:
        return self.stop_bonus * (message.stop == "eos") - self.length_cost * len(message.ids) / 100


def _kind(message: Message) -> tuple[str, bool]:
    return role_of(message.seat), message.final
