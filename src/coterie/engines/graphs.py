"""Decode steps captured as CUDA graphs, one for each batch size of a short list; played eagerly where there is no CUDA."""

import torch

from coterie.engines.cuda_forward import Forward
from coterie.engines.kernels_sampling import choose, truncate
from coterie.engines.slots import Slots

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640, 768, 1024, 1536, 2048)
"""Batch sizes that are captured; a batch is padded up to the next with rows that play the spare slot."""


class Steps:
    """The decode step over one set of slots and one cache. Graphs hold the addresses of both, and of the weights: a `Steps` is
    made anew when memory moves, and weights are refreshed in place."""

    def __init__(self, forward: Forward, slots: Slots, cache: torch.Tensor, stop_ids: torch.Tensor):
        self.forward, self.slots, self.cache, self.stop_ids = forward, slots, cache, stop_ids
        self._graphs: dict[tuple[int, bool], tuple[torch.cuda.CUDAGraph, torch.Tensor]] = {}
        self._pool = None

    def sample(self, logits_BV: torch.Tensor, rows_B: torch.Tensor, truncating: bool) -> None:
        if truncating:
            logits_BV = truncate(logits_BV, rows_B, self.slots)
        choose(logits_BV, rows_B, self.slots, self.stop_ids)

    def run(self, rows_B: torch.Tensor, count: int, truncating: bool) -> None:
        """`count` decode steps of the sequences in the slots `rows_B`, whose length is one of BUCKETS."""
        if not rows_B.is_cuda:
            for _ in range(count):
                self._step(rows_B, truncating)
            return
        key = (len(rows_B), truncating)
        if key not in self._graphs:
            self._graphs[key] = self._capture(rows_B, truncating)
        graph, rows = self._graphs[key]
        rows.copy_(rows_B)
        for _ in range(count):
            graph.replay()

    def _step(self, rows_B: torch.Tensor, truncating: bool) -> None:
        self.sample(self.forward.decode(rows_B, self.slots, self.cache), rows_B, truncating)

    def _capture(self, rows_B: torch.Tensor, truncating: bool) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
        """Warm up on the spare slot alone, which leaves every sequence as it was, then capture."""
        rows = torch.full_like(rows_B, self.slots.slots)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._step(rows, truncating)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"):
            self._step(rows, truncating)
        self._pool = self._pool or graph.pool()
        return graph, rows
