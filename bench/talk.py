"""The work that `step.py` and `evaluate.py` time: talk-to-solve at the published shape, on a model with random weights.

A model with random weights ends no message by itself, so that every message's length is drawn beforehand, from a distribution that
imitates the untrained Qwen2.5-1.5B: gamma, mean about 50 tokens for a message and 120 for a final one, cut at the caps. The engine
samples each to exactly that length; ids mean nothing, and time does not depend on them.
"""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from coterie.engines.base import Sampler
from coterie.types import POLICY, Row

SIZES: dict[str, dict[str, Any]] = {
    "1.5b": {  # Qwen2.5-1.5B
        "vocab_size": 151_936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1_000_000.0},
    },
    "pocket": {
        "vocab_size": 2048,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": True,
    },
}
CAPS = (160, 160, 384, 384)
MEANS = (50, 50, 120, 120)
OPENING = 245
"""Tokens of a seat's instructions and facts."""
AROUND = 8
"""Tokens of the chat template around a message."""


def make_model(size: str, device: str) -> Any:
    """A causal model of the named shape with random weights and an adapter that is not at its start (rank 32)."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from coterie.config import LoraConfig
    from coterie.learn.adapter import attach_adapter

    torch.manual_seed(0)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = Qwen2ForCausalLM(Qwen2Config(**SIZES[size]))
    finally:
        torch.set_default_dtype(torch.float32)
    model = attach_adapter(model.to(device), LoraConfig(), 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0, 1e-3)
    return model


@dataclass
class Chat:
    """One conversation: its opening (shared by the episodes of a task and seat) and the length of each message to come."""

    openings: tuple[tuple[int, ...], tuple[int, ...]]
    lengths: tuple[int, ...]
    said: tuple[int, ...] = ()
    turn: int = 0

    def prompt(self) -> tuple[int, ...]:
        return self.openings[self.turn % 2] + self.said


def make_chats(tasks: int, episodes: int, vocabulary: int, seed: int) -> list[Chat]:
    rng = np.random.default_rng(seed)
    chats = []
    for _ in range(tasks):
        openings = tuple(tuple(rng.integers(0, vocabulary, OPENING).tolist()) for _ in range(2))
        for _ in range(episodes):
            drawn = (int(min(cap, 1 + rng.gamma(2.0, mean / 2.0))) for cap, mean in zip(CAPS, MEANS, strict=True))
            chats.append(Chat(openings, tuple(drawn)))  # pyright: ignore[reportArgumentType]
    return chats


def make_engine(model: Any, slots: int) -> Any:
    from coterie.engines.local import LocalEngine
    from coterie.engines.players import Players

    return LocalEngine(Players(model), stop_ids=(), context_length=2048, slots=slots)


def play(engine: Any, chats: list[Chat], seed: int = 0) -> list[Row]:
    """All messages of all chats through the engine, each asked for as soon as the one before it ends; one row a message."""
    from coterie.engines.base import Request

    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    open_requests: dict[int, tuple[int, Request]] = {}

    def ask(index: int) -> None:
        chat = chats[index]
        count = chat.lengths[chat.turn]
        request = Request(chat.prompt(), count, POLICY, Sampler(1.0), tuple(rng.random(count).tolist()))
        open_requests[engine.submit(request)] = (index, request)

    for index in range(len(chats)):
        ask(index)
    while open_requests:
        for ticket, completion in engine.step():
            index, request = open_requests.pop(ticket)
            chat = chats[index]
            rows.append(
                Row(
                    prompt_ids=request.prompt_ids,
                    completion_ids=completion.ids,
                    logprobs=completion.logprobs,
                    advantage=(-1.0) ** index,
                    temperature=1.0,
                    policy_version=engine.policy_version,
                    task_id="",
                    episode=index,
                    seat="AB"[chat.turn % 2],
                    turn=chat.turn,
                )
            )
            chat.said += completion.ids + (0,) * AROUND
            chat.turn += 1
            if chat.turn < len(chat.lengths):
                ask(index)
    return rows


def made_up_rows(chats: list[Chat], vocabulary: int, seed: int = 0) -> list[Row]:
    """Rows of the same shape as `play` gives, without an engine: for timing the learner alone."""
    rng = np.random.default_rng(seed)
    rows = []
    for index, chat in enumerate(chats):
        for turn, count in enumerate(chat.lengths):
            ids = tuple(rng.integers(0, vocabulary, count).tolist())
            row = Row(chat.prompt(), ids, (-12.0,) * count, (-1.0) ** index, 1.0, 0, "", index, "AB"[turn % 2], turn)
            rows.append(row)
            chat.said += ids + (0,) * AROUND
            chat.turn += 1
    return rows


def synchronise() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def matrix_rate(device: str) -> float:
    """FLOP/s of a large square product of random data: bf16 and 8192 wide on CUDA, fp32 and 1024 wide elsewhere."""
    n, dtype = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    a, b = (torch.randn(n, n, device=device, dtype=dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    start = synchronise()
    for _ in range(20):
        a @ b
    return 20 * 2 * n**3 / (synchronise() - start)


def learner_flops(model: Any, rows: list[Row]) -> dict[str, float]:
    """Floating-point operations that one optimiser step has to make, in TFLOP.

    With N weights in the layers' projections, and frozen weights having no gradient: 2 N a token forward and 2 N backward. An
    adapter's n weights: 2 n forward, 4 n backward. The head runs at completion positions only, 2 D V forward and 2 D V backward.
    Attention, apart: 4 D L^2 / 2 a row and layer forward, 2.5 times that backward.
    """
    causal = model.get_base_model()
    config = causal.config
    adapter = sum(p.numel() for n, p in model.named_parameters() if "lora_" in n)
    base = sum(p.numel() for n, p in causal.model.layers.named_parameters() if p.ndim == 2 and "lora_" not in n)
    tokens = sum(len(r.prompt_ids) + len(r.completion_ids) for r in rows)
    completion = sum(len(r.completion_ids) for r in rows)
    width = config.num_attention_heads * (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    squares = sum((len(r.prompt_ids) + len(r.completion_ids)) ** 2 for r in rows)
    return {
        "base": 4 * base * tokens / 1e12,
        "adapter": 6 * adapter * tokens / 1e12,
        "head": 4 * config.hidden_size * config.vocab_size * completion / 1e12,
        "attention": 3.5 * 2 * width * squares * config.num_hidden_layers / 1e12,
    }
