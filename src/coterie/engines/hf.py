"""The reference engine: transformers' own forward pass and cache, one player's requests at a time.

Slow and plain on purpose. Every other engine is tested against it, and it runs any causal language model of transformers.
"""

import inspect
from typing import Any

import torch

from coterie.engines.base import Completion, Request, check_fit
from coterie.engines.players import Players
from coterie.engines.sampling import sample
from coterie.types import CoterieError


class HFEngine:
    def __init__(self, players: Players, *, stop_ids: tuple[int, ...], context_length: int, slots: int = 256):
        self.policy_version = 0
        self.context_length = context_length
        self._players, self._stop_ids, self._slots = players, frozenset(stop_ids), slots
        self._waiting: list[tuple[int, Request]] = []
        self._tickets = 0

    def submit(self, request: Request) -> int:
        reason = check_fit(len(request.prompt_ids), request.max_tokens, self.context_length)
        if reason:
            raise CoterieError(reason)
        self._tickets += 1
        self._waiting.append((self._tickets, request))
        return self._tickets

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        """Plays all waiting requests of the first one's player to their ends."""
        player = self._waiting[0][1].player
        batch = [(t, r) for t, r in self._waiting if r.player == player][: self._slots]
        taken = {ticket for ticket, _ in batch}
        self._waiting = [(t, r) for t, r in self._waiting if t not in taken]
        with self._players.as_module(player) as model:
            completions = _generate(model, [request for _, request in batch], self._stop_ids)
        return [(ticket, completion) for (ticket, _), completion in zip(batch, completions, strict=True)]

    def refresh(self, version: int) -> None:
        if self._waiting:
            raise RuntimeError("the policy's weights changed while messages were being decoded")
        self.policy_version = version


def _generate(model: Any, requests: list[Request], stop_ids: frozenset[int]) -> list[Completion]:
    """Left-padded batch with explicit attention mask and positions; an ended row is fed on and ignored."""
    device = next(model.parameters()).device
    width = max(len(r.prompt_ids) for r in requests)
    input_ids = torch.zeros(len(requests), width, dtype=torch.long, device=device)
    mask = torch.zeros_like(input_ids)
    for row, request in enumerate(requests):
        input_ids[row, width - len(request.prompt_ids) :] = torch.tensor(request.prompt_ids, device=device)
        mask[row, width - len(request.prompt_ids) :] = 1
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    ids: list[list[int]] = [[] for _ in requests]
    logprobs: list[list[float]] = [[] for _ in requests]
    stops: list[Any] = [None] * len(requests)
    cache = None
    # transformers 5.24 renames the argument and warns about the old name
    cache_argument = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
    while not all(stops):
        inputs = {"input_ids": input_ids, "attention_mask": mask, "position_ids": positions, cache_argument: cache}
        out = model(**inputs, use_cache=True, logits_to_keep=1)
        cache = out.past_key_values
        step = [min(len(i), len(r.uniforms) - 1) for i, r in zip(ids, requests, strict=True)]
        uniforms = torch.tensor([r.uniforms[s] for r, s in zip(requests, step, strict=True)], dtype=torch.float64, device=device)
        tokens, scores = sample(out.logits[:, -1], [r.sampler for r in requests], uniforms)
        for row, (token, score) in enumerate(zip(tokens.tolist(), scores.tolist(), strict=True)):
            if stops[row]:
                continue
            ids[row].append(token)
            logprobs[row].append(score)
            if token in stop_ids:
                stops[row] = "eos"
            elif len(ids[row]) == requests[row].max_tokens:
                stops[row] = "length"
        input_ids = tokens[:, None]
        mask = torch.cat([mask, mask.new_ones(len(requests), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return [Completion(tuple(i), tuple(p), s) for i, p, s in zip(ids, logprobs, stops, strict=True)]
