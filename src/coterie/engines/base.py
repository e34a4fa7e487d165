"""What an engine is: requests in, completions out, in whatever order they finish.

An engine lives with the learner and shares its weights. It is asked for many messages at once and returns each as soon as it
ends, so that the next request of that episode can join the batch; there is no barrier between turns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from coterie.types import Player, Stop, View


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a message is sampled. `temperature` 0 is greedy; `top_p` and `top_k` other than 1 and 0 are for evaluation only."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0


@dataclass(frozen=True, slots=True)
class Request:
    """One message to be sampled by `player` after `prompt_ids`, at most `max_tokens` long.

    `uniforms` (one a token, in [0, 1)) is all the randomness there is: the same request gives the same message in whatever
    batch it is decoded, up to rounding of the logits.
    """

    prompt_ids: tuple[int, ...]
    max_tokens: int
    player: Player
    sampler: Sampler
    uniforms: Sequence[float]
    view: View | None = None
    """What `prompt_ids` were made from: for a player that is reached by text and not by ids."""


@dataclass(frozen=True, slots=True)
class Completion:
    """The sampled ids (with the end-of-message token when `stop` is "eos") and the log-probability of each in nats."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop: Stop


class Engine(Interface):
    policy_version: int
    context_length: int
    """Most tokens, prompt and completion together, that the model can attend to."""

    def submit(self, request: Request) -> int:
        """Queue a request; returns its ticket. Raises CoterieError when prompt and cap do not fit the context."""
        ...

    def step(self) -> list[tuple[int, Completion]]:
        """Advance; returns the requests that ended, possibly none. Must not be called with nothing queued."""
        ...

    def refresh(self, version: int) -> None:
        """The policy's weights have changed: forget everything computed with the old ones. Refused while messages are in
        flight, because a key-value cache must never outlive an optimiser step."""
        ...


def check_fit(prompt_length: int, max_tokens: int, context_length: int) -> str | None:
    """Why a request does not fit the model's context, or None."""
    if prompt_length + max_tokens <= context_length:
        return None
    return (
        f"a prompt of {prompt_length} tokens and a cap of {max_tokens} do not fit the model's context of {context_length} tokens; "
        "shorten the tasks or lower protocol.message_tokens and protocol.final_tokens"
    )
