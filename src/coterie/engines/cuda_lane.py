"""A lane on CUDA: decode steps as captured graphs that the device advances by itself, read a few steps late.

Python costs nothing per token: a step samples, counts and marks ended sequences on the device, and the host replays several steps
at a time and then looks at the flags of the replay before, so that the device never waits for it. A sequence that has ended keeps
its slot, harmlessly, until the host has seen it. What the host sees depends on the steps replayed and never on timing, so the
order of completions repeats.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import torch

from coterie.engines.base import Completion, Request
from coterie.engines.cuda_forward import Forward, Prompts
from coterie.engines.graphs import BUCKETS, Steps
from coterie.engines.slots import Slots, upload
from coterie.types import CoterieError

_PREFILL_TOKENS = 16384
"""Most prompt tokens read in one pass, which bounds the memory of a prefill."""
_REPLAY = 4
"""Decode steps between two looks at the flags: a message that ends waits for twice as many at most."""
_PATIENCE = 4
"""Replays that a request waits for others to be read with it: a prefill costs about three decode steps, however short."""


@dataclass(slots=True, eq=False)
class _Active:
    """A sequence in a slot; `launched` counts the tokens it has been given steps for, ended or not."""

    ticket: int
    request: Request
    slot: int
    launched: int = 1
    ended: bool = False


@dataclass(slots=True)
class _Look:
    """Flags on their way to the host, and the sequences that they speak of."""

    progress: torch.Tensor
    event: torch.cuda.Event | None
    active: list[_Active]


class CudaLane:
    """`adapter_of` gives each player's index in the forward's stack of adapters (-1: none)."""

    def __init__(self, forward: Forward, slots: int, stop_ids: tuple[int, ...], adapter_of: Callable[[str], int] = lambda _: -1):
        self.forward, self.limit, self.adapter_of = forward, slots, adapter_of
        self.device = forward.decoder.embedding.device
        self.stop_ids = frozenset(stop_ids)
        self.stop_tensor = torch.tensor(stop_ids or (-1,), dtype=torch.int32, device=self.device)
        self.waiting: deque[tuple[int, Request]] = deque()
        self.active: list[_Active] = []
        self.free: list[int] = []
        self.span = 0
        self.slots: Slots | None = None
        self.cache: torch.Tensor | None = None
        self.steps: Steps | None = None
        self._looks: deque[_Look] = deque()
        self._rows: torch.Tensor | None = None
        self._waited = 0
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None

    def step(self) -> list[tuple[int, Completion]]:
        with torch.cuda.device(self.device) if self._side is not None else nullcontext():
            return self._advance()

    def _advance(self) -> list[tuple[int, Completion]]:
        done: list[tuple[int, Completion]] = []
        if self._should_admit():
            done += self._admit()
        replayed = self._replay()
        if self.active and (replayed or not self._looks):
            self._look()
        return done + self._collect(keep=1 if replayed else 0)

    def _should_admit(self) -> bool:
        """Reading prompts stalls those who are decoding, so a few requests are read together, unless one has waited long."""
        room = self.limit - len(self.active)
        if not self.waiting or not room:
            return False
        self._waited += 1
        enough = min(room, max(4, len(self.active) // 16))
        return len(self.waiting) >= enough or 4 * len(self.waiting) >= len(self.active) or self._waited > _PATIENCE

    def _admit(self) -> list[tuple[int, Completion]]:
        self._waited = 0
        coming = [request for _, request in islice(self.waiting, self.limit - len(self.active))]
        done = self._reserve(
            max(len(r.prompt_ids) + r.max_tokens for r in coming), len(self.active) + len(coming), max(r.max_tokens for r in coming)
        )
        started = []
        for _ in coming:  # exactly those that room was made for, even where reserving has freed more slots
            ticket, request = self.waiting.popleft()
            started.append(_Active(ticket, request, self.free.pop()))
        by_prompt: dict[tuple[int, tuple[int, ...]], list[_Active]] = {}
        for sequence in started:
            key = (self.adapter_of(sequence.request.player), sequence.request.prompt_ids)
            by_prompt.setdefault(key, []).append(sequence)
        for adapter, groups in _chunks(by_prompt, _PREFILL_TOKENS):
            self._read(adapter, groups)
        self.active += started
        self._rows = None
        return done

    def _read(self, adapter: int, groups: list[list[_Active]]) -> None:
        """Read one prompt for each group of sequences, copy its keys and values to the group's other slots, and sample."""
        assert self.slots is not None
        assert self.cache is not None
        prompts = [group[0].request.prompt_ids for group in groups]
        lengths = [len(p) for p in prompts]
        N, n = sum(lengths), len(prompts)
        packed = np.empty(3 * N + n + 1, np.int32)
        packed[:N] = np.fromiter(chain.from_iterable(prompts), np.int32, N)
        packed[N : 2 * N] = np.repeat(np.array([group[0].slot for group in groups], np.int32), lengths)
        packed[2 * N : 3 * N] = np.concatenate([np.arange(length, dtype=np.int32) for length in lengths])
        packed[3 * N :] = np.cumsum([0, *lengths])
        ids, slot, position, starts = upload(packed, self.device).split([N, N, N, n + 1])
        # Split views may start anywhere; kernels and cumulative lengths want their own alignment.
        reading = Prompts(ids.clone(), slot.clone(), position.clone(), starts.clone(), lengths, adapter)
        logits = self.forward.prefill(reading, self.cache)
        copies = [(group[0].slot, other.slot) for group in groups for other in group[1:]]
        longest = max(lengths)
        for at in range(0, len(copies), 64):
            pairs = upload(np.array(copies[at : at + 64], np.int64), self.device)
            past = self.cache[:, :, :, :, :longest]
            past[:, :, pairs[:, 1]] = past[:, :, pairs[:, 0]]
        sequences = [sequence for group in groups for sequence in group]
        if len(sequences) > len(groups):
            source = np.repeat(np.arange(len(groups)), [len(group) for group in groups])
            logits = logits[upload(source, self.device)]
        requests = [s.request for s in sequences]
        rows = self.slots.start([s.slot for s in sequences], requests, [adapter] * len(sequences))
        self._steps().sample(logits, rows, _truncates(requests))

    def _replay(self) -> int:
        """Up to `_REPLAY` decode steps of all active sequences; none when each has been given all the steps it can use."""
        left = max((a.request.max_tokens - a.launched for a in self.active), default=0)
        count = min(_REPLAY, left)
        if count <= 0:
            return 0
        if self._rows is None:
            assert self.slots is not None
            size = next(b for b in BUCKETS if b >= len(self.active))
            rows = np.full(size, self.slots.slots, np.int32)
            rows[: len(self.active)] = [a.slot for a in self.active]
            self._rows = upload(rows, self.device)
        self._steps().run(self._rows, count, _truncates([a.request for a in self.active]))
        for sequence in self.active:
            sequence.launched += count
        return count

    def _steps(self) -> Steps:
        if self.steps is None:
            assert self.slots is not None
            assert self.cache is not None
            self.steps = Steps(self.forward, self.slots, self.cache, self.stop_tensor)
        return self.steps

    def _look(self) -> None:
        assert self.slots is not None
        if self._side is None:
            self._looks.append(_Look(self.slots.progress.clone(), None, list(self.active)))
            return
        host = torch.empty(self.slots.progress.shape, dtype=torch.int32, pin_memory=True)
        host.copy_(self.slots.progress, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        self._looks.append(_Look(host, event, list(self.active)))

    def _collect(self, keep: int) -> list[tuple[int, Completion]]:
        """The completions of all looks but the last `keep`."""
        done = []
        while len(self._looks) > keep:
            look = self._looks.popleft()
            if look.event is not None:
                look.event.synchronize()
            count, flags = look.progress.tolist()
            ended = [a for a in look.active if flags[a.slot] and not a.ended]
            if not ended:
                continue
            counts = [count[a.slot] for a in ended]
            done += self._fetch(look, ended, counts)
            for sequence in ended:
                sequence.ended = True
                self.free.append(sequence.slot)
            self.active = [a for a in self.active if not a.ended]
            self._rows = None
        return done

    def _fetch(self, look: _Look, ended: list[_Active], counts: list[int]) -> list[tuple[int, Completion]]:
        """What the ended sequences said. On a stream of its own: their slots no longer change, the others go on meanwhile."""
        assert self.slots is not None
        index = np.array([a.slot for a in ended], np.int64)
        width = max(counts)
        with torch.cuda.stream(self._side):
            if self._side is not None and look.event is not None:
                self._side.wait_event(look.event)
            rows = upload(index, self.device)
            ids = self.slots.ids[rows, :width].tolist()
            logprobs = self.slots.logprobs[rows, :width].tolist()
        return [
            (a.ticket, Completion(tuple(i[:n]), tuple(p[:n]), "eos" if i[n - 1] in self.stop_ids else "length"))
            for a, n, i, p in zip(ended, counts, ids, logprobs, strict=True)
        ]

    def _reserve(self, span: int, slots: int, width: int) -> list[tuple[int, Completion]]:
        """Make room for `slots` sequences of `span` positions and caps of `width`, keeping what is there. Sizes are rounded up
        generously, because another size means other graphs. Returns what had to be read to the end before memory could move."""
        have = self.slots.slots if self.slots is not None else 0
        if self.slots is not None and slots <= have and span <= self.span and width <= self.slots.width:
            return []
        done = self._collect(keep=0)
        if not self.active:
            self.cache = self.steps = None  # nothing to keep: let go of the old memory first
        longest = -(-self.forward.context_length // 64) * 64
        span = max(self.span, min(max(512, 1 << (span - 1).bit_length()), longest))
        wanted = max(have, min(self.limit, next((b for b in BUCKETS if b >= slots), slots)))
        slots = min(wanted, max(self._affordable(span), have if self.active else 0))
        if slots < wanted:
            self.limit = slots
        if slots <= 0:
            raise CoterieError(f"engine: no memory for the cache of one message of {span} tokens; lower the caps")
        old, old_cache = self.slots, self.cache
        self.slots = Slots(slots, max(128, 1 << (width - 1).bit_length(), old.width if old is not None else 0), self.device)
        cache = self.forward.cache(slots, span)
        if old is not None and old_cache is not None:
            n = min(old.slots, slots)
            self.slots.keep(old)
            cache[:, :, :n, :, : self.span] = old_cache[:, :, :n]
        self.cache, self.span, self.steps, self._rows = cache, span, None, None
        taken = {a.slot for a in self.active}
        self.free = [slot for slot in reversed(range(slots)) if slot not in taken]
        return done

    def _affordable(self, span: int) -> int:
        """Slots that fit in three fifths of the memory that is free; the learner needs the rest."""
        if self.device.type != "cuda":
            return self.limit
        free, _ = torch.cuda.mem_get_info(self.device)
        free += torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(0.6 * free / (span * self.forward.bytes_per_position())) - 1


def _truncates(requests: Sequence[Request]) -> bool:
    return any(r.sampler.top_k or r.sampler.top_p < 1.0 for r in requests)


def _chunks(by_prompt: dict[tuple[int, tuple[int, ...]], list[_Active]], tokens: int) -> list[tuple[int, list[list[_Active]]]]:
    """The groups of equal prompts, cut where the tokens of a chunk would pass `tokens` and where the adapter changes."""
    chunks: list[tuple[int, list[list[_Active]]]] = []
    size = 0
    for (adapter, prompt), group in sorted(by_prompt.items(), key=lambda item: item[0][0]):
        if not chunks or chunks[-1][0] != adapter or size + len(prompt) > tokens:
            chunks.append((adapter, []))
            size = 0
        chunks[-1][1].append(group)
        size += len(prompt)
    return chunks
