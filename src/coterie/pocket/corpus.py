"""The text that the pocket model is pre-trained on: one chat turn per document, made on the spot.

Every prompt is built by the real `Chat.view` with the POCKET wording, so what the model has read and what it will be asked in play
cannot drift apart. Only what the model itself says is trained (the message and its end token).

Three kinds of document:

- `sum`: a bare sum, "12+15=" -> "27".
- `solo`: one copy with all the facts -> a worked solution.
- `talk`: one turn of a chat of two copies, in which all kinds of behaviour occur, useful or not. The behaviour that
  reinforcement learning will later select (say all your facts; work it through with what your partner said) is planted here at
  the chances of OPENINGS and WORK, and is never the most likely choice, so that greedy decoding does not show it.

The chance of each behaviour given what was seen before is the same everywhere. What came before is drawn with more useful
messages than the model itself would send (CONTEXT), because a last turn can practise using facts only where facts were sent; this
changes how much practice a skill gets and not how often the model uses it.
"""

import random
from dataclasses import dataclass, replace

from coterie.protocols.chat import POCKET, Chat
from coterie.tasks.pocket import Story, alone, as_task, deal, draw_story, split_of, tell
from coterie.tasks.pocket_families import FAMILIES, allowed, worked
from coterie.types import Message, Seat, Task, View

KINDS = {"sum": 0.08, "solo": 0.22, "talk": 0.70}
"""Chance of each kind of document."""

PRACTICE = {"more": 2, "fewer": 2, "moretotal": 2, "fewertotal": 2, "chain": 2, "chain3": 3, "shop": 2}
"""How often a family is drawn, where not once: those that are learnt last."""

SHUFFLED = 0.5
"""Share of solo documents whose facts come in any order, so that who is compared with whom is read and not counted off."""

OPENINGS = {"all": 0.38, "some": 0.05, "invented": 0.05, "question": 0.12, "hello": 0.40}
"""What a first message is. A seat with a single fact says "question" where "some" was drawn."""

CONTEXT = {"all": 0.70, "some": 0.05, "invented": 0.08, "question": 0.07, "hello": 0.10}
"""What the earlier messages of a document are, for a turn that has earlier messages."""

CONTEXT_WORK = 0.6
"""Chance that the earlier last message of a document works the problem through, likewise."""

WORK = 0.44
"""Chance that a last message works the problem through when the partner has sent all its facts; otherwise it guesses."""

WORK_BLIND = 0.25
"""The same when facts are missing: their numbers are then made up."""

UNDELIVERED = 0.25
"""Share of chats whose messages do not arrive."""

DRAWN = tuple(family for name, family in FAMILIES.items() for _ in range(PRACTICE.get(name, 1)))

ORDER: tuple[Seat, ...] = ("A", "B", "A", "B")
TURNS = (1, 1, 2, 2)
"""How often each turn is practised: last messages are the harder ones."""

CAP = 48
"""Tokens that a message may have; no planted message comes near it (a test checks)."""

TALK = Chat(ORDER, CAP, CAP, True, POCKET)
CUT = Chat(ORDER, CAP, CAP, False, POCKET)
ALONE = Chat(("A",), CAP, CAP, True, POCKET)
"""One copy that holds all the facts and answers at once: how its own skill is measured (with `tasks.pocket.alone`)."""

HELLO = ("Hello!", "Hello, nice to see you.", "Hello, how are you?", "Hello, let us begin.")
QUESTION = ("What do you know?", "What are your facts?", "Please tell me what you know.")
ALL = ("I know: ", "My facts: ")
SOME = "One fact: "
INVENTED = "Perhaps: "
GUESS = ("My guess is \\boxed{{{}}}.", "My guess: \\boxed{{{}}}.")
"""One first word for all guesses, so that guessing is the likeliest way to begin a last message."""


@dataclass(frozen=True, slots=True)
class Document:
    """One training sequence: `view` is the prompt, `reply` what the model says."""

    view: View
    reply: str


def pick(rng: random.Random, chances: dict[str, float]) -> str:
    return rng.choices(tuple(chances), tuple(chances.values()))[0]


def document(rng: random.Random) -> Document:
    kind = pick(rng, KINDS)
    if kind == "sum":
        return bare_sum(rng)
    story = draw_story(rng, rng.choice(DRAWN), "train")
    task = as_task(story, deal(rng, len(story.forms)), prove=False)
    if kind == "solo":
        whole = alone(task)
        if rng.random() < SHUFFLED:
            whole = replace(whole, private={"A": tuple(rng.sample(whole.private["A"], len(whole.private["A"])))})
        return Document(ALONE.view(whole, "A", (), True), solution(story, story.numbers))
    return talk_turn(rng, story, task)


def bare_sum(rng: random.Random) -> Document:
    """One sum of the kinds and sizes that solutions hold. Sums belong to no split."""
    while True:
        operator = rng.choice("+-*")
        left, right = (rng.randint(2, 12), rng.randint(2, 12)) if operator == "*" else (rng.randint(2, 150), rng.randint(2, 99))
        result = {"+": left + right, "-": left - right, "*": left * right}[operator]
        if 1 <= result <= 180:
            return Document(View((("user", f"{left}{operator}{right}="),)), str(result))


def talk_turn(rng: random.Random, story: Story, task: Task) -> Document:
    """One turn of a chat, with the turns before it drawn from CONTEXT and the turn itself from the prior."""
    chat = CUT if rng.random() < UNDELIVERED else TALK
    turn = rng.choices(range(len(ORDER)), TURNS)[0]
    said: list[Message] = []
    for i in range(turn):
        said.append(message(i, speak(rng, story, task, i, said, chat.deliver, CONTEXT, CONTEXT_WORK)[0]))
    reply, final = speak(rng, story, task, turn, said, chat.deliver, OPENINGS, WORK)
    return Document(chat.view(task, ORDER[turn], tuple(said), final), reply)


def speak(
    rng: random.Random,
    story: Story,
    task: Task,
    turn: int,
    said: list[Message],
    deliver: bool,
    kinds: dict[str, float],
    work: float,
) -> tuple[str, bool]:
    """What the seat of this turn says, and whether it is its last message."""
    seat = ORDER[turn]
    if turn < 2:
        return opening(rng, story, task.meta["hands"][seat], pick(rng, kinds)), False
    partner = next(m.text for m in said if m.seat != seat)
    mine, other = task.meta["hands"][seat], task.meta["hands"]["B" if seat == "A" else "A"]
    numbers = heard(story, mine, other, partner) if deliver else None
    if rng.random() < (work if numbers else WORK_BLIND):
        return solution(story, numbers or make_up(rng, story, mine)), True
    return rng.choice(GUESS).format(rng.randint(2, 99)), True


def opening(rng: random.Random, story: Story, hand: tuple[int, ...], kind: str) -> str:
    facts = tell(tuple(story.forms[i] for i in hand), tuple(story.numbers[i] for i in hand))
    if kind == "all":
        return rng.choice(ALL) + " ".join(facts)
    if kind == "invented":
        made_up = make_up(rng, story, ())
        return INVENTED + " ".join(tell(tuple(story.forms[i] for i in hand), tuple(made_up[i] for i in hand)))
    if kind == "some" and len(facts) > 1:
        return SOME + rng.choice(facts)
    return rng.choice(HELLO if kind == "hello" else QUESTION)


def heard(story: Story, mine: tuple[int, ...], other: tuple[int, ...], text: str) -> tuple[int, ...] | None:
    """The numbers as a seat knows them after its partner's first message, or None when one is missing, they do not fit, or
    invented facts happen to make a held-out problem."""
    if not text.startswith((*ALL, INVENTED)):
        return None
    told = [int(word) for word in text.replace(".", "").split() if word.isdigit()]
    known = dict(zip(other, told, strict=True)) | {i: story.numbers[i] for i in mine}
    numbers = tuple(known[i] for i in range(len(story.numbers)))
    fits = all(1 <= line[3] <= 200 for line in worked(story.family, numbers))
    return numbers if fits and split_of(story.family.name, numbers) == "train" else None


def make_up(rng: random.Random, story: Story, known: tuple[int, ...]) -> tuple[int, ...]:
    """Allowed numbers of the train split that agree with the story at the `known` places, drawn as the generator would."""
    for _ in range(200):
        numbers = tuple(
            story.numbers[i] if i in known else rng.randint(low, high) for i, (low, high) in enumerate(story.family.ranges)
        )
        if allowed(story.family, numbers) and split_of(story.family.name, numbers) == "train":
            return numbers
    return story.numbers


def solution(story: Story, numbers: tuple[int, ...]) -> str:
    """For example "3*9=27. 27+4=31. \\boxed{31}"."""
    lines = worked(story.family, numbers)
    return "".join(f"{left}{operator}{right}={result}. " for left, operator, right, result in lines) + f"\\boxed{{{lines[-1][3]}}}"


def message(turn: int, text: str) -> Message:
    """A message of which only seat and text matter: enough for `Chat.view`."""
    return Message(ORDER[turn], "policy", turn, turn > 1, (), (), (), "eos", text, 1.0, 0)
