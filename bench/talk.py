"""The work that `step.py` and `evaluate.py` time: talk-to-solve at the published shape, on a model with random weights.

A model with random weights ends no message by itself, so every message's length is drawn beforehand, from a distribution that
imitates the untrained Qwen2.5-1.5B: gamma, mean about 50 tokens for a message and 120 for a final one, cut at the caps. The engine
samples each to exactly that length. Prompts are random ids with the structure of `protocols.chat`: a system text that all share,
the facts and question of a task and seat, the conversation so far, and a few words on what to write now.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from coterie.engines.base import Request, Sampler
from coterie.types import POLICY, Row

CAPS, MEANS = (160, 160, 384, 384), (50, 50, 120, 120)
SYSTEM, TASK, AROUND, ENDS = 55, 155, 4, (20, 20, 35, 35)
"""Tokens: of the system text; of facts and question; around a message of the conversation; of the instruction at each turn."""


@dataclass
class Chat:
    heads: tuple[tuple[int, ...], ...]
    """What each seat's prompts begin with; the same for all episodes of a task."""
    lengths: tuple[int, ...]
    """How long each message will be."""
    said: list[int] = field(default_factory=list)
    turn: int = 0

    def prompt(self) -> tuple[int, ...]:
        return (*self.heads[self.turn % 2], *self.said, *range(1, 1 + ENDS[self.turn]))

    def hear(self, ids: tuple[int, ...]) -> bool:
        """Take the message in; whether another is to come."""
        self.said += [*range(1, 1 + AROUND), *ids]
        self.turn += 1
        return self.turn < len(self.lengths)


def make_chats(tasks: int, episodes: int, vocabulary: int, seed: int = 0) -> list[Chat]:
    rng = np.random.default_rng(seed)
    system = rng.integers(0, vocabulary, SYSTEM).tolist()
    chats = []
    for _ in range(tasks):
        heads = tuple((*system, *rng.integers(0, vocabulary, TASK).tolist()) for _ in range(2))
        for _ in range(episodes):
            drawn = (min(cap, 1 + int(rng.gamma(2.0, mean / 2.0))) for cap, mean in zip(CAPS, MEANS, strict=True))
            chats.append(Chat(heads, tuple(drawn)))
    return chats


def _row(chat: Chat, episode: int, prompt: tuple[int, ...], ids: tuple[int, ...], logprobs: tuple[float, ...]) -> Row:
    """Every row has an advantage, the most work that a step can be."""
    return Row(prompt, ids, logprobs, (-1.0) ** episode, 1.0, 0, "", episode, "AB"[chat.turn % 2], chat.turn)


def play(engine: Any, chats: list[Chat], seed: int = 0) -> list[Row]:
    """All messages of all chats through the engine, each asked for as soon as the one before it ends; one row a message."""
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    asked: dict[int, tuple[int, Request]] = {}

    def ask(index: int) -> None:
        chat = chats[index]
        count = chat.lengths[chat.turn]
        request = Request(chat.prompt(), count, POLICY, Sampler(1.0), rng.random(count).tolist())
        asked[engine.submit(request)] = (index, request)

    for index in range(len(chats)):
        ask(index)
    while asked:
        for ticket, completion in engine.step():
            index, request = asked.pop(ticket)
            rows.append(_row(chats[index], index, request.prompt_ids, completion.ids, completion.logprobs))
            if chats[index].hear(completion.ids):
                ask(index)
    return rows


def made_up_rows(chats: list[Chat], vocabulary: int, seed: int = 0) -> list[Row]:
    """Rows of the same shape as `play` gives, without an engine."""
    rng = np.random.default_rng(seed)
    rows = []
    for index, chat in enumerate(chats):
        more = True
        while more:
            count = chat.lengths[chat.turn]
            ids = tuple(rng.integers(0, vocabulary, count).tolist())
            rows.append(_row(chat, index, chat.prompt(), ids, (-12.0,) * count))
            more = chat.hear(ids)
    return rows


def matrix_rate(device: str) -> float:
    """FLOP/s of a large square product of random data: bf16 and 8192 wide on CUDA, fp32 and 1024 wide elsewhere."""
    from common import seconds

    n, dtype, count = (8192, torch.bfloat16, 20) if device == "cuda" else (1024, torch.float32, 2)
    a, b = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))

    def work() -> None:
        for _ in range(count):
            a @ b

    work()
    return count * 2 * n**3 / seconds(work, device)


def learner_flops(model: Any, rows: list[Row], tokens: int) -> dict[str, float]:
    """Floating-point operations of one optimiser step on `rows`, computing `tokens` tokens in all, in TFLOP.

    With N weights in the layers' projections, which are frozen and so have no gradient: 2 N a token forward and 2 N backward. An
    adapter's n weights: 2 n forward, 4 n backward. The head runs at completion positions only: 2 D V forward, 2 D V backward.
    Attention, apart: a row's last tokens against all before them, 4 D a pair forward and 2.5 times that backward; here for all rows
    apart, which is more than is done when rows share tokens.
    """
    causal = model.get_base_model()
    config = causal.config
    adapter = sum(p.numel() for n, p in model.named_parameters() if "lora_" in n)
    base = sum(p.numel() for n, p in causal.model.layers.named_parameters() if p.ndim == 2 and "lora_" not in n)
    completion = sum(len(r.completion_ids) for r in rows)
    width = config.num_attention_heads * (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    pairs = sum((len(r.prompt_ids) + len(r.completion_ids)) ** 2 / 2 for r in rows)
    return {
        "base": 4 * base * tokens / 1e12,
        "adapter": 6 * adapter * tokens / 1e12,
        "head": 4 * config.hidden_size * config.vocab_size * completion / 1e12,
        "attention_apart": 3.5 * 4 * width * pairs * config.num_hidden_layers / 1e12,
    }
