"""How a prompt is laid out in which a copy is given a problem, and what of the talk stands under it: shared by solo, team, board
and debate."""

from collections.abc import Sequence
from dataclasses import dataclass

from coterie.types import Task, View


@dataclass(frozen=True, slots=True)
class Page:
    """Every word that a prompt adds to the task and the talk. `body` is a format string over {question} (the whole problem),
    {facts}, {ask} and {talk}; what is put in is never interpreted. `between` parts the lines of the talk; `nothing` stands where
    there are none.

    `told` is for the pocket model, which reads nothing but turns of a chat: {facts} is then the first half of the facts, and the
    talk begins with this line, which tells the second.
    """

    system: str
    body: str
    told: str = ""
    between: str = "\n"
    nothing: str = ""

    def view(self, task: Task, lines: Sequence[str] = (), hand: Sequence[str] | None = None) -> View:
        """The prompt of a copy that knows the whole problem or, with `hand`, these facts and no others."""
        facts = task.question if hand is None else " ".join(hand)
        story = task.meta.get("facts", ())
        if hand is None and self.told and len(story) > 1:
            half = len(story) // 2
            facts = " ".join(story[:half])
            lines = (self.told.format(facts=" ".join(story[half:])), *lines)
        talk = self.between.join(lines) or self.nothing
        body = self.body.format(question=task.question if hand is None else "", facts=facts, ask=task.ask, talk=talk)
        return View((("system", self.system), ("user", body)) if self.system else (("user", body),))


POCKET_BODY = "Facts: {facts}\nQuestion: {ask}\n{talk}\n"
"""The one form of prompt that the pocket model was pre-trained on; an instruction ends it."""

POCKET_TOLD = "Partner: I know: {facts}"


def pocket_page(instruction: str) -> Page:
    """The pocket model's page of a whole problem, as a chat in which the partner has told its half.

    Not with every fact under "Facts:", because the pocket model was pre-trained on that and solves 98 % of such problems at once,
    which leaves nothing to learn. So laid out it works the problem through in four tries of ten and guesses in the others.
    """
    return Page("", POCKET_BODY + instruction, POCKET_TOLD, nothing="(nothing yet)")
