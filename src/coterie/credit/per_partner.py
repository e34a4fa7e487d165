"""As team_mean, but compared with episodes of the same cast only."""

from collections import defaultdict
from collections.abc import Callable

from coterie.credit.baselines import above_mean, graded, pay
from coterie.types import Episode, Group


def per_partner(group: Group) -> list[list[float | None]]:
    """Every message is paid the team reward minus the mean reward of the pool's episodes with the same players in the same seats.

    The published mixed arm of talk-methods takes one mean over chats with a trained and with an untrained partner. The advantage
    then says in part which partner was drawn: every chat with the weak partner is punished, and A learns from it whatever it said
    there. Who sits where is drawn before anybody speaks, so a mean for each cast is as unbiased as one for all, and without that
    noise.

    A cast with one episode in the pool gets exactly 0.0: there is nothing to compare it with, and any other baseline would pay the
    partner and not the message.

    Known failure: small casts. A mean over n episodes contains the episode itself, which shrinks its gradient by (n - 1)/n: with
    two episodes a cast by a half, with one to nothing. A pool of many partners needs many episodes a task.
    """
    rewards: defaultdict[frozenset, list[float]] = defaultdict(list)
    for episode in graded(group.pool):
        rewards[_cast(episode)].append(episode.reward or 0.0)
    above: dict[frozenset, Callable[[float], float]] = {cast: above_mean(values) for cast, values in rewards.items()}
    return pay(group, lambda episode, message: above[_cast(episode)](episode.reward or 0.0))


def _cast(episode: Episode) -> frozenset[tuple[str, str]]:
    return frozenset(episode.cast.items())
