"""What the device knows of each sequence: a row of small tensors for each cache slot, so that a decode step needs no host.

The slot after the last is spare: rows that pad a batch to a captured size play it. It is done from the start, so nothing is ever
written for it but one position of its own cache.
"""

from collections.abc import Sequence

import numpy as np
import torch

from coterie.engines.base import Request

_GRID = 2.0**-22  # as in `sampling`; exact in float32
_INTS = ("last", "position", "cap", "top_k", "adapter", "count", "done")


def upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """To the device without waiting for it: pinned pages are kept until the copy is done by torch's own allocator."""
    tensor = torch.from_numpy(array)
    return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


class Slots:
    """Per slot: last id, its position, count of sampled ids, cap, done flag, sampler, uniforms and what was sampled.

    `position` is where the last id's key will be written. `width` is the largest cap there is room for.
    """

    def __init__(self, slots: int, width: int, device: torch.device):
        self.slots, self.width, self.device = slots, width, device
        columns = -(-(slots + 1) // 4) * 4  # rows that start at 16 bytes: Triton compiles a kernel anew for another alignment
        self.ints = torch.zeros(len(_INTS), columns, dtype=torch.int32, device=device)
        self.ints[_INTS.index("done")] = 1
        self.last, self.position, self.cap, self.top_k, self.adapter, self.count, self.done = self.ints
        self.floats = torch.ones(2, columns, dtype=torch.float32, device=device)
        self.temperature, self.top_p = self.floats
        self.uniforms = torch.zeros(slots + 1, width, dtype=torch.float32, device=device)
        self.ids = torch.zeros(slots + 1, width, dtype=torch.int32, device=device)
        self.logprobs = torch.zeros(slots + 1, width, dtype=torch.float32, device=device)

    @property
    def progress(self) -> torch.Tensor:
        """(2, slots or a few more): count and done."""
        return self.ints[_INTS.index("count") :]

    def keep(self, old: "Slots") -> None:
        """Take over what a smaller one holds."""
        n = old.slots
        self.ints[:, :n] = old.ints[:, :n]
        self.floats[:, :n] = old.floats[:, :n]
        for name in ("uniforms", "ids", "logprobs"):
            getattr(self, name)[:n, : old.width] = getattr(old, name)[:n]

    def start(self, slots: Sequence[int], requests: Sequence[Request], adapters: Sequence[int]) -> torch.Tensor:
        """Enter sequences whose prompts are read and whose first token is not yet sampled; `adapters` are their indices in the
        stack. Returns their slots on the device, (n)."""
        n = len(slots)
        ints = np.zeros((len(_INTS) + 1, n), np.int32)
        floats = np.zeros((n, 2 + self.width), np.float32)
        for i, request in enumerate(requests):
            sampler = request.sampler
            ints[:, i] = (0, len(request.prompt_ids) - 1, request.max_tokens, sampler.top_k, adapters[i], 0, 0, slots[i])
            floats[i, :2] = (sampler.temperature, sampler.top_p)
            uniforms = np.asarray(request.uniforms[: request.max_tokens], np.float64)
            floats[i, 2 : 2 + len(uniforms)] = np.floor(uniforms / _GRID) * _GRID
        at = upload(ints, self.device)
        rows = at[-1].long()
        self.ints.index_copy_(1, rows, at[:-1])
        values = upload(floats, self.device)
        self.floats.index_copy_(1, rows, values[:, :2].t().contiguous())
        self.uniforms.index_copy_(0, rows, values[:, 2:].contiguous())
        return at[-1].clone()  # memory of its own, for its alignment
