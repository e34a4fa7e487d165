"""Stand-ins for tests: a word tokenizer with a chat template, and an engine that says what it is told."""

from collections.abc import Callable

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from coterie.engines.base import Completion, Request
from coterie.grading.base import Grader, GradingError
from coterie.tokens import ChatTokenizer
from coterie.types import Task

TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, so that any text can be encoded and nothing is ever merged."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>", chat_template=TEMPLATE)


def chat_tokenizer() -> ChatTokenizer:
    return ChatTokenizer(byte_tokenizer(), "test tokenizer")


class ScriptedEngine:
    """Answers each request with `speak(request)` (a text) after `delay(request)` steps; at its cap a message is cut."""

    context_length = 4096

    def __init__(self, tokenizer: ChatTokenizer, speak: Callable[[Request], str], delay: Callable[[Request], int] = lambda r: 1):
        self.policy_version = 0
        self._tokenizer, self._speak, self._delay = tokenizer, speak, delay
        self._open: dict[int, tuple[int, Request]] = {}
        self.now = 0
        self.log: list[tuple[int, str, Request]] = []
        self._tickets = 0

    def submit(self, request: Request) -> int:
        self._tickets += 1
        self._open[self._tickets] = (self.now + self._delay(request), request)
        self.log.append((self.now, "asked", request))
        return self._tickets

    def step(self) -> list[tuple[int, Completion]]:
        assert self._open, "step was called with nothing queued"
        self.now += 1
        done = []
        for ticket, (due, request) in list(self._open.items()):
            if due <= self.now:
                del self._open[ticket]
                ids = (*self._tokenizer._plain_ids(self._speak(request)), self._tokenizer.stop_ids[0])[: request.max_tokens]
                stop = "eos" if ids[-1] in self._tokenizer.stop_ids else "length"
                done.append((ticket, Completion(ids, tuple(-0.5 for _ in ids), stop)))
        return done

    def refresh(self, version: int) -> None:
        self.policy_version = version


class EqualText(Grader):
    """1.0 when the text is the answer; "?" cannot be graded."""

    def grade(self, answers):
        return [GradingError("question mark") if text == "?" else float(text == gold) for text, gold in answers]


def task(number: int = 1, **private: tuple[str, ...]) -> Task:
    private = private or {"A": ("Tom has 3.",), "B": ("Sue has 4.",)}
    facts = " ".join(fact for facts in private.values() for fact in facts)
    return Task(id=f"t{number}", question=f"{facts} How many? ({number})", answer="7", ask="How many?", private=private)
