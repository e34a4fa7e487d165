"""A message is paid for what it changed: how its hearers did, minus how they do without it."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from coterie.credit.base import Advantages, Replays
from coterie.credit.baselines import above_mean, graded, role_of, score
from coterie.types import POLICY, Episode, Group, Message, Probe, Seat


@dataclass(frozen=True, slots=True)
class LeaveOneOut:
    """The effect of a message: the mean, over the seats whose final message heard it, of the seat's score in the episode minus its
    mean score over `replays` replays without the message. To hear is meant directly or through others; a final message of the
    speaker itself counts when it heard another seat's message that had changed. A final message is also paid its own score minus
    the mean score of the final messages of its role over the pool.

    In a chat A B A B, turns 0 and 1 get the difference of the team reward, turn 2 (A's answer, which B hears) its own part and
    its effect on B, turn 3 its own part alone. A note on a board gets the mean difference over its readers.

    The replay is the baseline. It is what would have happened had nothing been said, so it does not depend on what was said, and
    a baseline that does not depend on the action leaves the expected gradient as it is (COMA, 1705.08926, eq. 4, where the
    baseline averages over the agent's other actions; difference rewards with a default action, Wolpert & Tumer 2001). Therefore
    no further mean is subtracted. All else is the same in both (problem, the other notes), so what these add to the score, and to
    its variance, cancels. The expected gradient of a note is that of its readers' mean score, exactly.

    Known failures. A replay has sampling noise of its own: where readers guess, one replay doubles the variance of the score,
    `replays` of them multiply it by 1 + 1/replays. A message that repeats another is worth nothing, and so is the other, even when
    one of them is needed. The speaker remembers what it said: in a chat a later answer of its own is sampled with the message in
    its prompt, in the replay too, so a message is not paid for what it does as its own seat's scratchpad; for that part the
    gradient is not the team reward's. It pays the scores of answers, also where the team is rewarded otherwise (a debate's vote).
    It costs `replays` replays a message: on a board of four that all read, five times the reading.

    Only what is trained is asked about: no replay is made for another player's message, for one that reaches nobody's answer, or
    in an episode whose grading failed. Replays whose grading failed, or in which a hearer gave no answer, are left out; a message
    with no other gets exactly 0.0.
    """

    replays: int

    def probes(self, group: Group) -> Sequence[Probe]:
        return [
            probe
            for index, episode in enumerate(group.episodes)
            if episode.reward is not None
            for message in episode.messages
            for probe in self._probes(index, episode, message)
        ]

    def advantages(self, group: Group, replays: Replays) -> Advantages:
        scores: defaultdict[str, list[float]] = defaultdict(list)
        for episode in graded(group.pool):
            for message in episode.messages:
                if message.final:
                    scores[role_of(message.seat)].append(score(message))
        above = {role: above_mean(values) for role, values in scores.items()}

        def worth(index: int, episode: Episode, message: Message) -> float:
            asked = self._probes(index, episode, message)
            effect = _effect(episode, hearers(episode, message), [replays[probe] for probe in asked]) if asked else 0.0
            if effect is None:
                return 0.0
            return effect + above[role_of(message.seat)](score(message)) if message.final else effect

        return [
            [0.0 if episode.reward is None else worth(index, episode, message) for message in episode.messages]
            for index, episode in enumerate(group.episodes)
        ]

    def _probes(self, index: int, episode: Episode, message: Message) -> list[Probe]:
        asked = message.player == POLICY and hearers(episode, message)
        return [Probe(index, message.turn, repeat) for repeat in range(self.replays)] if asked else []


def hearers(episode: Episode, message: Message) -> list[Seat]:
    """The seats whose (last) final message a replay without `message` samples anew: it heard the message as another seat's, or a
    message that did, and so on."""
    changed: set[int] = set()
    for later in episode.messages:
        if later.turn > message.turn:
            news = changed if later.seat == message.seat else changed | {message.turn}
            if not news.isdisjoint(later.heard):
                changed.add(later.turn)
    last = {final.seat: final.turn for final in episode.messages if final.final}
    return [seat for seat, turn in last.items() if turn in changed]


def _effect(episode: Episode, seats: Sequence[Seat], replays: Sequence[Episode]) -> float | None:
    """The mean difference that the message made to `seats`, or None when no replay was graded. Differences first, then the mean:
    where nothing changed it is exactly 0.0."""
    whole = [replay for replay in graded(replays) if set(seats) <= replay.scores.keys()]
    return statistics.mean(episode.scores[s] - replay.scores[s] for replay in whole for s in seats) if whole else None
