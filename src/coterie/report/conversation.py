"""One conversation in the terminal: who knew what, what was said, private numbers in colour where they are sent and used."""

from rich.console import Console
from rich.text import Text

from coterie.measures import highlights, numbers
from coterie.types import Episode, Message, Seat, Task

SENT = "bold cyan"
USED = "bold magenta"


def private_numbers(task: Task) -> dict[Seat, set[str]]:
    """For each seat, the numbers in its facts that stand neither in another seat's facts nor in the question."""
    of = {seat: numbers(" ".join(facts)) for seat, facts in task.private.items()}
    asked = numbers(task.ask)
    return {seat: own - asked - set().union(*(other for s, other in of.items() if s != seat)) for seat, own in of.items()}


def _coloured(text: str, own: set[str], others: set[str]) -> Text:
    shown = Text(text)
    for start, end, kind in highlights(text, own, others):
        shown.stylize(SENT if kind == "own" else USED, start, end)
    return shown


def print_conversation(console: Console, task: Task, episode: Episode) -> None:
    private = private_numbers(task)

    def others(seat: Seat) -> set[str]:
        return set().union(*(numbers for s, numbers in private.items() if s != seat))

    console.print(Text(f"{task.id}: ", "bold").append(task.ask), soft_wrap=True)
    for seat, facts in task.private.items():
        console.print(Text(f"  {seat} knows: ", "bold").append_text(_coloured(" ".join(facts), private[seat], set())), soft_wrap=True)
    console.print()
    for message in episode.messages:
        console.print(_line(message, private.get(message.seat, set()), others(message.seat)), soft_wrap=True)
    console.print()
    for seat, score in episode.scores.items():
        console.print(f"  {seat}: {'right' if score == 1 else 'wrong' if score == 0 else score}", markup=False)
    for seat, error in episode.errors.items():
        console.print(f"  {seat}: could not be graded ({error})", markup=False)
    legend = Text("  the answer is ").append(task.answer, "bold").append("; ")
    console.print(legend.append("own numbers sent", SENT).append(", ").append("partner's numbers used", USED), soft_wrap=True)


def _line(message: Message, own: set[str], others: set[str]) -> Text:
    who = Text(f"{message.seat} ({message.player}){' ends' if message.final else ''}: ", "bold")
    text = who.append_text(_coloured(message.text, own, others))
    return text.append(" [cut by its cap]", "yellow") if message.stop == "length" else text
