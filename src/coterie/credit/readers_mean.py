"""Final messages are paid their own score; a note the mean score of those who read it."""

import statistics
from collections.abc import Callable

from coterie.credit.baselines import above_finals, above_mean, graded, pay, score
from coterie.types import Episode, Group, Message


def readers_mean(group: Group) -> list[list[float | None]]:
    """A final message is paid as by `zero_notes`. Any other message (a note): the mean score of the final messages that heard it,
    minus the mean of that quantity over all notes of the pool that somebody heard. A note that no final message heard: 0.0.

    This is the change of board-writers: on a ring of four, note i is read by readers i and i - 1. Published over the notes of one
    board; with several boards of a task the mean is over all of them, as the mean of the readers is. The mean over the task's own
    notes takes the problem's difficulty out, which is most of what the readers' scores vary by.

    Known failures. What is left is still shared: on a ring each reader pays two notes, so one useful note lifts its two neighbours
    to the mean, and the useless note opposite is punished more than they are. The mean contains the note's own readers, which
    shrinks its gradient: on one ring of four to a half, and when all readers see all notes to nothing, because the notes of a board
    then have the same readers and get exactly 0.0. Several boards of the task help, and then a note is paid for its board. In the
    published runs it was flat (-.042 over three seeds).
    """
    finals, readers = above_finals(group), above_readers(group)
    return pay(group, lambda episode, message: finals(message) if message.final else readers(episode, message))


def above_readers(group: Group) -> Callable[[Episode, Message], float]:
    """A function of a note and its episode: the readers' part of its credit."""
    notes = [(e, m) for e in graded(group.pool) for m in e.messages if not m.final]
    above = above_mean(worth for episode, note in notes if (worth := _heard_with(episode, note)) is not None)

    def readers(episode: Episode, note: Message) -> float:
        worth = _heard_with(episode, note)
        return 0.0 if worth is None else above(worth)

    return readers


def _heard_with(episode: Episode, note: Message) -> float | None:
    """The mean score of the final messages that heard the note; None when none did."""
    scores = [score(m) for m in episode.messages if m.final and note.turn in m.heard]
    return statistics.mean(scores) if scores else None
