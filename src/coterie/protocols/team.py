"""team: one copy writes the lines of several speakers in one reply: Solver proposes, Checker checks, Lead settles.

Only the last box counts and the talk itself is never paid, so training may well delete it: in the published run a prompt like this
cost 13 points before training, and after 40 steps no reply held any talk (Qwen2.5-1.5B-Instruct, GSM8K, two seeds).

Source: team-talk of whilehq/whileai-sdk, after Societies of Thought, arXiv:2601.10825, and arXiv:2609.22682.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from coterie.protocols.pages import Page, pocket_page
from coterie.protocols.solo import Solo
from coterie.types import Episode, Seat, Task

PLAIN = Page(
    system="Three people work on the user's problem, and you write down what each of them says. Solver puts forward a solution. "
    "Checker does the arithmetic again and says what is wrong with it, if anything is. Lead decides and gives the result as "
    "\\boxed{number}. They may speak more than once. Begin every turn on a new line with the speaker's name, like this:\n"
    "Solver: First ..., so ...\n"
    "Checker: I get ... for the second step, because ...\n"
    "Solver: You are right, then ...\n"
    "Lead: We agree. \\boxed{...}",
    body="{question}",
)
"""For instruction-tuned models."""

WORDINGS = {"plain": PLAIN, "pocket": pocket_page("Solver, Checker, Lead. Answer:")}
"""The pocket model has never read these names, so that it must not be expected to speak in turns."""

CHECKER = "Checker"

_TURN = re.compile(r"^[ \t>#*_\-]*(Solver|Checker|Lead)[ \t]*[*_]*[ \t]*:", re.MULTILINE)


def turns(text: str) -> tuple[str, ...]:
    """Who speaks, turn by turn: the names that begin a line and have a colon after them. Spaces and markdown marks may stand
    before a name, marks for bold around it. The published counting rule."""
    return tuple(_TURN.findall(text))


def talks(text: str) -> bool:
    """Whether a reply is talk: three turns or more, by two speakers or more, one of them Checker."""
    speakers = turns(text)
    return len(speakers) >= 3 and len(set(speakers)) >= 2 and CHECKER in speakers


@dataclass(frozen=True, slots=True)
class Team(Solo):
    """One reply to the whole problem like `Solo`'s, but with the lines of several speakers; `final_tokens` caps all of it."""

    seat: ClassVar[Seat] = "team"

    def measures(self, episodes: Sequence[Episode], tasks: Mapping[str, Task]) -> dict[str, Any]:
        """talks: share of replies that are talk; turns: turns in a reply, mean."""
        replies = [message.text for episode in episodes for message in episode.messages]
        if not replies:
            return {"talks": None, "turns": None}
        return {
            "talks": sum(map(talks, replies)) / len(replies),
            "turns": sum(len(turns(reply)) for reply in replies) / len(replies),
        }
