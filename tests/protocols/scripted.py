"""Episodes in which everything that is said is written down beforehand."""

from collections.abc import Sequence

from coterie.engines.base import Sampler
from coterie.hall import Hall, Plan, Replay
from coterie.play import play
from coterie.protocols.base import Protocol
from coterie.types import POLICY, Episode, Message, Task
from tests.fakes import EqualText, ScriptedEngine, chat_tokenizer

TOKENIZER = chat_tokenizer()


def played(protocol: Protocol, task: Task, said: Sequence[str], replay: Replay | None = None) -> Episode:
    """One episode in which the messages that are sampled say `said`, in the order in which they are asked for."""
    texts = iter(said)
    engine = ScriptedEngine(TOKENIZER, lambda request: next(texts))
    hall = Hall(protocol, engine, TOKENIZER, EqualText(), Sampler(1.0), 0)
    names = ("replay",) if replay else ("episode",)
    (episode,) = play([Plan(task, 0, dict.fromkeys(protocol.seats, POLICY), names, replay)], hall)
    assert next(texts, None) is None, "fewer messages were asked for"
    return episode


def prompt(message: Message) -> str:
    """The prompt of a message as text, without control tokens."""
    return TOKENIZER.decode(message.prompt_ids)


def note(seat: str, turn: int, text: str, hidden: bool = False) -> Message:
    """A message of which only seat, turn and text matter."""
    return Message(seat, POLICY, turn, False, (1,), (2,), (-1.0,), "eos", text, 1.0, 0, hidden=hidden)


def number(text: str) -> str | None:
    """Reads an answer out of a text, for tests: "so 7" gives "7", a text without digits none."""
    digits = "".join(character for character in text if character.isdigit())
    return digits or None
