"""From views to prompt ids and from sampled ids to text, such that no message can speak with the template's voice.

A chat template surrounds each message with control tokens. If a message's text were pasted into the rendered template, a copy
that writes the literal marker of a new turn would put real control tokens into its partner's prompt. Here the template is
rendered once per shape of conversation with placeholders for the contents; control tokens are taken from the template's own text
only, and everything between two of them, contents included, is encoded by a tokenizer that knows no added tokens.
"""

import functools
import inspect
import json
import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from coterie.types import CoterieError, View

_PLACEHOLDER = re.compile("\ue000([0-9]+)\ue001")
_TODAY = datetime(2026, 1, 1)
"""What templates that print the date (Llama 3, SmolLM3) are told: prompts that follow the clock could not be played again."""
_PROBES = (
    View((("user", "Tom has 12 apples.\nHow many?"),)),
    View((("system", "Be short."), ("user", "Tom has 12 apples."))),
)
_SAID = ("So it is 12.", "<think>\n7 + 5\n</think>\n\nSo it is 12.")
"""What a template may not touch in an assistant's earlier message; several drop the thoughts (Qwen3, SmolLM3, DeepSeek-R1)."""


@dataclass(frozen=True, slots=True)
class _Control:
    """A control token of the template."""

    id: int


class ChatTokenizer:
    """A Hugging Face fast tokenizer with a chat template, made safe for text that models write to each other.

    Raises CoterieError when the folder has no fast tokenizer or no chat template, or when the safe encoding of a harmless
    conversation differs from the template's own.
    """

    def __init__(self, tokenizer: Any, source: str, stop_ids: tuple[int, ...] = ()):
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if not isinstance(backend, Tokenizer):
            raise CoterieError(f"{source}: needs a fast tokenizer (tokenizer.json); save one with AutoTokenizer.save_pretrained")
        if not tokenizer.chat_template:
            raise CoterieError(f"{source}: its tokenizer has no chat template; name a file with one in model.chat_template")
        if tokenizer.eos_token_id is None:
            raise CoterieError(
                f"{source}: its tokenizer has no eos_token, so no message could end; set one in tokenizer_config.json"
            )
        self.source = source
        self._tokenizer = tokenizer
        self._plain = _without_added_tokens(backend)
        self._added = dict(tokenizer.get_added_vocab())
        self._added_pattern = re.compile(
            "|".join(re.escape(text) for text in sorted(self._added, key=len, reverse=True)) or r"(?!)"
        )
        self.stop_ids = tuple(dict.fromkeys((tokenizer.eos_token_id, *stop_ids)))
        pad = tokenizer.pad_token_id
        self.pad_id = tokenizer.eos_token_id if pad is None else pad
        self.control_ids = frozenset(self._added.values())
        self._template = functools.lru_cache(maxsize=256)(self._render_template)
        self._end_of = functools.lru_cache(maxsize=1024)(self._find_end)
        for probe in _PROBES:
            self._check_against_template(probe)
        if self.control_ids.intersection(self._plain_ids(" ".join(self._added))):
            raise CoterieError(
                f"{source}: its tokenizer turns plain text into control tokens, so messages could forge turns; use another"
            )

    def encode(self, view: View) -> tuple[int, ...]:
        """The prompt ids of a view, ending where the model is to speak.

        Where the view holds sampled ids they are put in as they are, never made from text again, and followed by the token with
        which the template ends the message, unless they end with it themselves (a message that was cut does not). So the prompt
        begins with the prompt that they were sampled from and these ids, token for token; a template with which it would not is
        refused. Sampled ids may hold control tokens: a seat can only fool itself with them, since others are shown its text.
        """
        roles = tuple(role for role, _ in view.messages)
        contents = [content.strip() for _, content in view.messages]
        ends = {place: self._end_of(roles, place) for place, _ in view.sampled}
        sampled = {place: ids for place, ids in view.sampled if ids}
        ids: list[int] = []
        text = ""
        parts = iter(self._template(roles))
        for part in parts:
            if isinstance(part, _Control):
                ids += self._plain_ids(text)
                ids.append(part.id)
                text = ""
            elif isinstance(part, int) and part in sampled:
                ids += self._plain_ids(text)
                ids += sampled[part]
                text = ""
                next(parts)  # the end of the message, which is ends[part]
                if ids[-1] != ends[part]:
                    ids.append(ends[part])
            else:
                text += contents[part] if isinstance(part, int) else part
        return tuple(ids + self._plain_ids(text))

    def decode(self, ids: tuple[int, ...] | list[int]) -> str:
        """The text of a message: what was sampled, without control tokens."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def encode_text(self, text: str) -> tuple[int, ...]:
        """The ids of a message that is known as text only. None of them is a control token, whatever the text says."""
        return tuple(self._plain_ids(text))

    @functools.cached_property
    def end_id(self) -> int:
        """The id that ends a message: what the template writes after one, if sampling stops at it, else the eos token. (Gemma's
        messages end with a token of the template's that is not its eos token.)"""
        try:
            parts = self._template(("user", "assistant"))
        except CoterieError:  # a template that cannot show a reply
            return self.stop_ids[0]
        after = parts[parts.index(1) + 1 :][:1]
        return next((part.id for part in after if isinstance(part, _Control) and part.id in self.stop_ids), self.stop_ids[0])

    def text_of_length(self, tokens: int) -> str:
        """A text of at least `tokens` tokens and not many more: digits, of which a token holds one to three."""
        text = "7" * tokens
        return text * -(-tokens // len(self._plain_ids(text)))

    def _plain_ids(self, text: str) -> list[int]:
        return self._plain.encode(text, add_special_tokens=False).ids if text else []

    def _render_template(self, roles: tuple[str, ...]) -> tuple[_Control | int | str, ...]:
        messages = [{"role": role, "content": f"\ue000{index}\ue001"} for index, role in enumerate(roles)]
        try:
            rendered = self._render(messages)
        except Exception as error:  # jinja templates raise what they like, for example on a role that they refuse
            raise CoterieError(f"{self.source}: its chat template refuses the roles {', '.join(roles)} ({error})") from error
        parts: list[_Control | int | str] = []
        for index, piece in enumerate(_PLACEHOLDER.split(rendered)):
            if index % 2:
                parts.append(int(piece))
                continue
            position = 0
            for match in self._added_pattern.finditer(piece):
                if match.start() > position:
                    parts.append(piece[position : match.start()])
                parts.append(_Control(self._added[match.group()]))
                position = match.end()
            if position < len(piece):
                parts.append(piece[position:])
        shown = [part for part in parts if isinstance(part, int)]
        if shown != list(range(len(roles))):
            raise CoterieError(f"{self.source}: its chat template does not show each message once, in order ({', '.join(roles)})")
        return tuple(parts)

    def _find_end(self, roles: tuple[str, ...], place: int) -> int:
        """The control token with which the template ends the assistant's message at `place`. Raises CoterieError where the prompt
        does not begin with the prompt before that message and the message, whatever it says."""
        parts = self._template(roles)
        end = parts[parts.index(place) + 1]
        if not isinstance(end, _Control) or not all(self._extends(roles, place, said) for said in _SAID):
            raise CoterieError(
                f"{self.source}: its chat template writes an assistant's earlier messages otherwise than they were sampled, so the "
                'prompts of a dialogue would not extend each other; set protocol.history = "rebuilt"'
            )
        return end.id

    def _extends(self, roles: tuple[str, ...], place: int, said: str) -> bool:
        messages = [{"role": role, "content": said if index == place else "7"} for index, role in enumerate(roles)]
        return self._render(messages).startswith(self._render(messages[:place]) + said)

    def _render(self, messages: list[dict[str, str]]) -> str:
        return self._tokenizer.apply_chat_template(
            messages,
            tokenize=False,
            add_generation_prompt=True,
            strftime_now=_TODAY.strftime,
            date_string=_TODAY.strftime("%d %b %Y"),
        )

    def _check_against_template(self, view: View) -> None:
        messages = [{"role": role, "content": content} for role, content in view.messages]
        try:
            text = self._render(messages)
        except Exception:
            return  # a template that refuses this shape is reported when a protocol asks for it
        expected = tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        if self.encode(view) != expected:
            raise CoterieError(
                f"{self.source}: its tokenizer does not encode the chat template piece by piece; use another tokenizer"
            )


def _without_added_tokens(backend: Tokenizer) -> Tokenizer:
    spec = json.loads(backend.to_str())
    spec.update(added_tokens=[], post_processor=None, padding=None, truncation=None)
    return Tokenizer.from_str(json.dumps(spec))


def load_tokenizer(
    source: str, chat_template: str | None = None, stop_ids: tuple[int, ...] = (), model_type: str | None = None
) -> ChatTokenizer:
    """The tokenizer of a model folder or hub id; `chat_template` names a file that replaces its template, `model_type` is what the
    model's config.json says."""
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **_no_false_alarm(model_type))
    except Exception as error:
        raise CoterieError(
            f"{source}: no tokenizer could be loaded there ({_first_line(error)}); it needs tokenizer.json"
        ) from error
    if chat_template is not None:
        try:
            tokenizer.chat_template = Path(chat_template).read_text(encoding="utf-8")
        except OSError as error:
            raise CoterieError(f"model.chat_template: {chat_template} cannot be read ({error.strerror})") from error
    return ChatTokenizer(tokenizer, source, stop_ids)


_MISTRAL = ("mistral", "mistral3", "voxtral", "ministral", "pixtral")


def _no_false_alarm(model_type: str | None) -> dict[str, bool]:
    """transformers tells of a wrong regex of Mistral's for every large vocabulary in a folder whose config.json names no version
    (transformers #44031). Say that there is nothing to mend where the model is not one of Mistral's."""
    from transformers import PreTrainedTokenizerFast

    patch = getattr(PreTrainedTokenizerFast, "_patch_mistral_regex", None)
    known = patch is not None and "fix_mistral_regex" in inspect.signature(patch).parameters
    return {"fix_mistral_regex": False} if known and model_type is not None and model_type not in _MISTRAL else {}


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
