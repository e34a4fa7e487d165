"""Imitate the winners."""

from coterie.credit.baselines import pay
from coterie.types import Group


def raft(group: Group) -> list[list[float | None]]:
    """1.0 for every message of an episode whose team reward is exactly 1.0, 0.0 for every other message.

    RAFT (2304.06767) fine-tunes on the best of the model's own samples; this is its form in talk-methods, where the losers stay in
    the batch at 0.0. With a reward of 0 or 1 it is REINFORCE without a baseline: right in the mean, so groups that only win train
    too, which is why equal rewards are not a zero here unless all are below 1.

    Known failures: without a baseline the variance is high, and easy problems weigh most. The loss is divided by the tokens of the
    losers too, so the step shrinks when wins are rare: one published seed of three collapsed to messages of 16 characters and
    earned nothing for a dozen steps. A half-won chat (0.5) counts as lost.
    """
    return pay(group, lambda episode, message: 1.0 if episode.reward == 1.0 else 0.0)
