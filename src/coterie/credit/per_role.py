"""Every message is paid its own seat's score, compared with its own role only."""

import statistics
from collections import defaultdict

from coterie.credit.baselines import above_mean, graded, pay, role_of
from coterie.types import Episode, Group, Message


def per_role(group: Group) -> list[list[float | None]]:
    """A message is paid with the score of its own seat, minus the mean of that role's values over the pool. A role is a seat's
    name without its trailing number. A message of a seat without a score is paid with its own score where it was graded (a note
    on the board), and with the team reward otherwise.

    One baseline an agent: Dr. MAS (2602.08847) shows that one mean over agents whose rewards differ in level makes gradients large
    without telling anything; SPIRAL (2506.24119) keeps a mean for each role for the same reason. Adding a constant to the scores
    of one role changes no advantage. A seat counts once an episode in the mean, however often it speaks.

    Known failure: it is selfish. A seat is not paid for what its messages did for others, so with shared facts it learns to answer
    and without (chat) to ask but not to tell; `team_mean` and `leave_one_out` pay for the partner.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for episode in graded(group.pool):
        of_seat: defaultdict[str, list[float]] = defaultdict(list)
        for message in episode.messages:
            of_seat[message.seat].append(_value(episode, message))
        for seat, of_messages in of_seat.items():
            values[role_of(seat)].append(statistics.mean(of_messages))
    above = {role: above_mean(of_role) for role, of_role in values.items()}
    return pay(group, lambda episode, message: above[role_of(message.seat)](_value(episode, message)))


def _value(episode: Episode, message: Message) -> float:
    """In this order: the seat's score, the message's own, the team reward."""
    found = episode.scores.get(message.seat, message.score)
    return (episode.reward or 0.0) if found is None else found
