"""One conversation in the terminal: who knew what, what was said, private numbers in colour where they are sent and used."""

import unicodedata

from rich.console import Console
from rich.text import Text

from coterie.measures import highlights, others_numbers, private_numbers
from coterie.types import Episode, Message, Task

SENT = "bold cyan"
USED = "bold magenta"


def visible(text: str) -> str:
    """`text` with control and formatting characters (escape sequences, changes of writing direction) written out, so that what a
    model or a task file says cannot steer the terminal."""
    return "".join(
        c if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf") else c.encode("unicode_escape").decode() for c in text
    )


def _coloured(text: str, own: frozenset[str], others: frozenset[str]) -> Text:
    text = visible(text)
    shown = Text(text)
    for start, end, kind in highlights(text, own, others):
        shown.stylize(SENT if kind == "own" else USED, start, end)
    return shown


def print_conversation(console: Console, task: Task, episode: Episode) -> None:
    console.print(Text(f"{visible(task.id)}: ", "bold").append(visible(task.ask)), soft_wrap=True)
    for seat, facts in task.private.items():
        console.print(
            Text(f"  {seat} knows: ", "bold").append_text(_coloured(" ".join(facts), private_numbers(task, seat), frozenset())),
            soft_wrap=True,
        )
    console.print()
    for message in episode.messages:
        console.print(_line(message, private_numbers(task, message.seat), others_numbers(task, message.seat)), soft_wrap=True)
    console.print()
    for seat, score in episode.scores.items():
        console.print(f"  {seat}: {'right' if score == 1 else 'wrong' if score == 0 else score}", markup=False)
    for seat, error in episode.errors.items():
        console.print(f"  {seat}: could not be graded ({error})", markup=False)
    answer = Text("  the answer is ").append(visible(task.answer), "bold")
    if console.color_system:
        answer.append("; colours: ").append("own numbers sent", SENT).append(", ").append("partner's numbers used", USED)
    console.print(answer, soft_wrap=True)


def _line(message: Message, own: frozenset[str], others: frozenset[str]) -> Text:
    who = Text(f"{message.seat} ({message.player}){' ends' if message.final else ''}: ", "bold")
    text = who.append_text(_coloured(message.text, own, others))
    return text.append(" [cut by its cap]", "yellow") if message.stop == "length" else text
