"""Final messages are paid their own score; other messages nothing."""

from dataclasses import dataclass

from coterie.credit.baselines import above_finals, pay
from coterie.types import Group


@dataclass(frozen=True, slots=True)
class ZeroNotes:
    """A final message: its own score minus the mean score of all final messages of the pool. Any other message: 0.0, or None
    with `left_out`.

    This is what two published experiments measure their change against. On one board of four readers the mean is that of the four.
    board-writers (baseline arm) keeps the notes in the batch at zero, so that the loss is divided by the same number of tokens in
    both arms; message-board drafts them without a gradient: `left_out`. A note that is left out is so in an episode whose grading
    failed too; everything else there is 0.0.

    Known failures: nobody learns to write for a reader, though shared weights move the notes all the same. And where one final
    message hears another (chat, A B A B), the mean holds a score that the first of them has influenced, so that A is paid a
    little less for helping B; `leave_one_out` has no such term.
    """

    left_out: bool

    def __call__(self, group: Group) -> list[list[float | None]]:
        finals = above_finals(group)
        credits = pay(group, lambda episode, message: finals(message) if message.final else 0.0)
        if not self.left_out:
            return credits
        return [
            [credit if message.final else None for credit, message in zip(of_episode, episode.messages, strict=True)]
            for of_episode, episode in zip(credits, group.episodes, strict=True)
        ]
