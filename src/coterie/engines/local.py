"""coterie's own decode loop: continuous batching over a key-value cache that is allocated once.

Each player has a lane: fused weights and a block of cache slots. A request waits until a slot is free, its prompt is read
(equal prompts once, however many episodes ask it), and from then on every decode step gives one token to every active sequence.
A message that ends leaves at once; the last active sequence moves into its slot, so that the active ones stay contiguous and no
step copies the cache.
"""

import importlib.util
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from coterie.engines import decoder as dec
from coterie.engines.base import Completion, Request, check_fit
from coterie.engines.players import Players
from coterie.engines.sampling import sample
from coterie.types import BASE, POLICY, CoterieError, Player

if TYPE_CHECKING:
    from coterie.engines.cuda_lane import CudaLane

_ALL = "*"
"""The lane in which all players are decoded together."""
_PREFILL_TOKENS = 8192
"""Most padded prompt tokens read in one pass, which bounds the memory of a prefill."""
_SPAN_STEP = 64
"""The cache is grown, and attention spans are rounded up, by this many positions."""


@dataclass(slots=True)
class _Active:
    """A sequence being decoded."""

    ticket: int
    request: Request
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class _Lane:
    """The sequences of one player, decoded with plain tensor operations."""

    def __init__(self, decoder: dec.Decoder, slots: int, stop_ids: tuple[int, ...]):
        self.decoder = decoder
        self.slots = slots
        self.stop_ids = frozenset(stop_ids)
        self.waiting: deque[tuple[int, Request]] = deque()
        self.active: list[_Active] = []
        self.cache: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.span = 0

    def step(self) -> list[tuple[int, Completion]]:
        done: list[tuple[int, Completion]] = []
        if self._should_admit():
            done += self._admit()
        if self.active:
            done += self._decode()
        return done

    def _should_admit(self) -> bool:
        """Reading prompts stalls those who are decoding, and one prompt costs about as much as a whole decode step: wait until
        several have come together, unless little is left to decode."""
        free = self.slots - len(self.active)
        return bool(free and self.waiting) and (len(self.waiting) >= min(8, free) or 4 * len(self.waiting) >= len(self.active))

    def _reserve(self, span: int, slots: int) -> None:
        """Make the cache hold `slots` sequences of `span` positions, keeping what it holds."""
        have = self.cache[0][0].shape if self.cache else (0, 0, 0, 0)
        if have[0] >= slots and have[2] >= span:
            return
        slots, span = max(slots, have[0]), max(-(-span // _SPAN_STEP) * _SPAN_STEP, have[2])
        d = self.decoder
        grown = []
        for index in range(len(d.layers)):
            pair = tuple(d.embedding.new_zeros(slots, d.key_heads, span, d.head_size) for _ in range(2))
            if self.cache:
                for new, old in zip(pair, self.cache[index], strict=True):
                    new[: have[0], :, : have[2]] = old
            grown.append(pair)
        self.cache = grown

    def _admit(self) -> list[tuple[int, Completion]]:
        batch = [self.waiting.popleft() for _ in range(min(len(self.waiting), self.slots - len(self.active)))]
        by_prompt: dict[tuple[int, ...], list[tuple[int, Request]]] = {}
        for ticket, request in batch:
            by_prompt.setdefault(request.prompt_ids, []).append((ticket, request))
        self._reserve(max(len(r.prompt_ids) + r.max_tokens for _, r in batch), len(self.active) + len(batch))
        done: list[tuple[int, Completion]] = []
        for prompts in _chunks(sorted(by_prompt, key=len), _PREFILL_TOKENS):
            done += self._read(prompts, by_prompt)
        return done

    def _read(self, prompts: list[tuple[int, ...]], by_prompt: dict) -> list[tuple[int, Completion]]:
        device = self.decoder.embedding.device
        lengths = [len(p) for p in prompts]
        ids_BT = torch.zeros(len(prompts), max(lengths), dtype=torch.long)
        for row, prompt in enumerate(prompts):
            ids_BT[row, : len(prompt)] = torch.tensor(prompt)
        logits_BV, cache = dec.prefill(self.decoder, ids_BT.to(device), torch.tensor(lengths, device=device))
        source = [row for row, prompt in enumerate(prompts) for _ in by_prompt[prompt]]
        first = len(self.active)
        for (keys, values), (new_keys, new_values) in zip(self.cache, cache, strict=True):
            keys[first : first + len(source), :, : ids_BT.shape[1]] = new_keys[source]
            values[first : first + len(source), :, : ids_BT.shape[1]] = new_values[source]
        started = [_Active(ticket, request) for prompt in prompts for ticket, request in by_prompt[prompt]]
        self.active += started
        return self._extend(logits_BV[source], started)

    def _decode(self) -> list[tuple[int, Completion]]:
        device = self.decoder.embedding.device
        last = torch.tensor([a.ids[-1] for a in self.active], device=device)
        positions = [len(a.request.prompt_ids) + len(a.ids) - 1 for a in self.active]
        span = min(-(-(max(positions) + 1) // _SPAN_STEP) * _SPAN_STEP, self.cache[0][0].shape[2])
        n = len(self.active)
        cache = [(keys[:n], values[:n]) for keys, values in self.cache]
        logits_BV = dec.decode(self.decoder, last, torch.tensor(positions, device=device), cache, span)
        return self._extend(logits_BV, self.active)

    def _extend(self, logits_BV: torch.Tensor, sequences: list[_Active]) -> list[tuple[int, Completion]]:
        """Sample the next token of each sequence; retire those that end."""
        uniforms = torch.tensor([a.request.uniforms[len(a.ids)] for a in sequences], dtype=torch.float64, device=logits_BV.device)
        ids_B, logprobs_B = sample(logits_BV, [a.request.sampler for a in sequences], uniforms)
        done, ended = [], set()
        for sequence, token, logprob in zip(list(sequences), ids_B.tolist(), logprobs_B.tolist(), strict=True):
            sequence.ids.append(token)
            sequence.logprobs.append(logprob)
            stopped = token in self.stop_ids
            if stopped or len(sequence.ids) == sequence.request.max_tokens:
                done.append(
                    (sequence.ticket, Completion(tuple(sequence.ids), tuple(sequence.logprobs), "eos" if stopped else "length"))
                )
                ended.add(sequence.ticket)
        if ended:
            self._retire(ended)
        return done

    def _retire(self, ended: set[int]) -> None:
        """Fill the slots of ended sequences with active ones from the end."""
        slot = 0
        while slot < len(self.active):
            if self.active[slot].ticket not in ended:
                slot += 1
                continue
            last = self.active.pop()
            if slot == len(self.active):
                break
            if last.ticket in ended:
                continue
            length = len(last.request.prompt_ids) + len(last.ids)
            for keys, values in self.cache:
                keys[slot, :, :length] = keys[len(self.active), :, :length]
                values[slot, :, :length] = values[len(self.active), :, :length]
            self.active[slot] = last


def _chunks(prompts: list[tuple[int, ...]], tokens: int) -> list[list[tuple[int, ...]]]:
    """Prompts sorted by length, cut where the padded size of a chunk would pass `tokens`."""
    chunks: list[list[tuple[int, ...]]] = []
    for prompt in prompts:
        if chunks and (len(chunks[-1]) + 1) * len(prompt) <= tokens:
            chunks[-1].append(prompt)
        else:
            chunks.append([prompt])
    return chunks


def _rank(player: Player) -> tuple[bool, bool, Player]:
    return player != POLICY, player != BASE, player


class LocalEngine:
    """The engine that lives with the learner; see the module docstring. Deterministic for a given order of submissions.

    `kernels` chooses the lane of `cuda_lane` (Triton kernels and captured graphs; the default on CUDA) or the plain one (the
    default elsewhere, and what the other is tested against). `together` decodes all players in one lane, each row with its own
    adapter unmerged: for populations, where merged weights would make a small batch for each player.
    """

    def __init__(
        self,
        players: Players,
        *,
        stop_ids: tuple[int, ...],
        context_length: int,
        slots: int = 256,
        kernels: bool | None = None,
        together: bool = False,
    ):
        self.policy_version = 0
        self.context_length = context_length
        self._players, self._slots, self._stop_ids = players, slots, stop_ids
        self._lanes: dict[Player, _Lane | CudaLane] = {}
        self._stale: set[Player] = set()
        self._tickets = 0
        with players.as_module(BASE) as model:
            reason = dec.unsupported(model) or players.unsupported()
            device = model.model.embed_tokens.weight.device
        if reason:
            raise CoterieError(f'engine.kind = "local" cannot run this model ({reason}); set engine.kind=hf')
        self._kernels = device.type == "cuda" if kernels is None else kernels
        self._together = together
        if together and not (self._kernels and players.adapters):
            raise CoterieError("players can only be decoded together on CUDA, and only when they are adapters of one model")
        if self._kernels and importlib.util.find_spec("triton") is None:
            raise CoterieError('engine.kind = "local" needs Triton on CUDA (pip install triton); or set engine.kind=hf')

    def submit(self, request: Request) -> int:
        reason = check_fit(len(request.prompt_ids), request.max_tokens, self.context_length)
        if reason:
            raise CoterieError(reason)
        self._tickets += 1
        self._lane(request.player).waiting.append((self._tickets, request))
        return self._tickets

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Completion]]:
        # in an order of their own: that in which they were opened is another after a run is resumed
        return [done for player in sorted(self._lanes, key=_rank) for done in self._lanes[player].step()]

    def refresh(self, version: int) -> None:
        if any(lane.active or lane.waiting for lane in self._lanes.values()):
            raise RuntimeError("the policy's weights changed while messages were being decoded")
        self.policy_version = version
        there = (_ALL, POLICY, BASE, *self._players.adapters)  # a snapshot that has left gives its memory back
        self._lanes = {player: lane for player, lane in self._lanes.items() if player in there}
        self._stale = {POLICY, _ALL} & self._lanes.keys()  # the others are frozen

    def _lane(self, player: Player) -> "_Lane | CudaLane":
        if self._together:
            if player not in (POLICY, BASE, *self._players.adapters):
                raise self._players.unknown(player)
            player = _ALL
        if player not in self._lanes:
            self._lanes[player] = self._open(player)
        elif player in self._stale:
            self._renew(player)
        self._stale.discard(player)
        return self._lanes[player]

    def _open(self, player: Player) -> "_Lane | CudaLane":
        decoder = dec.build(self._players, BASE if player == _ALL else player)
        if not self._kernels:
            return _Lane(decoder, self._slots, self._stop_ids)
        if player in (BASE, _ALL):
            dec.share(decoder, self._players)
        from coterie.engines.cuda_forward import Forward
        from coterie.engines.cuda_lane import CudaLane
        from coterie.engines.graphs import BUCKETS
        from coterie.engines.lora import Stack

        rows = next((b for b in BUCKETS if b >= self._slots), BUCKETS[-1])
        if player != _ALL:
            return CudaLane(Forward(decoder, self.context_length, rows), min(self._slots, rows), self._stop_ids)
        with self._players.as_module(BASE) as model:
            stack = Stack(model, self._players.adapters, decoder.embedding.dtype)
        forward = Forward(decoder, self.context_length, rows, stack)
        return CudaLane(forward, min(self._slots, rows), self._stop_ids, lambda name: stack.index(self._players.adapter(name)))

    def _renew(self, player: Player) -> None:
        """The cache's memory stays, its contents do not: no sequence is active, and each is written before it is read."""
        lane = self._lanes[player]
        if isinstance(lane, _Lane):
            lane.decoder = dec.build(self._players, player)
        elif lane.forward.stack is not None:
            with self._players.as_module(BASE) as model:
                lane.forward.stack.refill(model)
        else:
            dec.refill(lane.forward.decoder, self._players, player)
