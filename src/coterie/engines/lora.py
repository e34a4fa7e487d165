# pyright: reportMissingImports=false, reportIndexIssue=false
"""Several adapters in one batch: each row's products get the low-rank update of that row's own adapter.

The adapters of one model are stacked: for each fused product of a layer, A (adapters, parts r, in) and B (adapters, out, r), where
a fused product has several parts (q, k, v; gate, up) with an A each, and r is the largest rank (smaller ones are padded with
zeros). The scaling is folded into B. Rows with adapter -1 play the base. In a decode step all A's are one product, and one kernel
adds to each row what its own adapter's B makes of its own part. That reads every adapter once a step, whatever the batch: right for
a population of a dozen, not for hundreds. Slower than merged weights, and the only way when a batch mixes adapters.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from coterie.types import CoterieError

_BN = 64
"""Outputs of one program of the second kernel."""

SITES: dict[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


@triton.jit(do_not_specialize=["B"])
def _expand(
    h, b, y, blocks, adapter, B, OUT, WIDTH, RANK, ADAPTERS,
    BM: tl.constexpr, BN: tl.constexpr, RP: tl.constexpr,
):  # fmt: skip
    """A block of outputs of one part, for BM rows: what each adapter adds to the rows that play it."""
    block = blocks + tl.program_id(0) * 3
    j = tl.arange(0, BN)
    n = tl.load(block) + j
    live_n = j < tl.load(block + 1)
    part = tl.load(block + 2)
    m = tl.program_id(1) * BM + tl.arange(0, BM)
    r = tl.arange(0, RP)
    live_m = m < B
    live_r = r < RANK
    which = tl.load(adapter + m, mask=live_m, other=-1)
    acc = tl.zeros((BN, BM), tl.float32)
    for a in range(ADAPTERS):
        own = which == a
        if tl.sum(own.to(tl.int32), 0) > 0:
            up = tl.load(b + (a * OUT + n[:, None]) * RANK + r[None, :], mask=live_n[:, None] & live_r[None, :], other=0.0)
            low = h + m[None, :] * (ADAPTERS * WIDTH) + a * WIDTH + part * RANK + r[:, None]
            acc += tl.dot(up, tl.load(low, mask=own[None, :] & live_r[:, None], other=0.0), input_precision="ieee")
    at = y + m[None, :] * OUT + n[:, None]
    both = live_n[:, None] & live_m[None, :]
    tl.store(at, (tl.load(at, mask=both, other=0.0).to(tl.float32) + acc).to(y.dtype.element_ty), mask=both)


class Stack:
    """The named adapters of a PEFT model, fused like the decoder's weights. `refill` reads them again into the same memory."""

    def __init__(self, model: Any, names: Sequence[str], dtype: torch.dtype):
        self.names = tuple(names)
        self._sites: list[dict[str, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]] = []
        self._outs: dict[str, list[int]] = {}
        ranks = [
            module.lora_A[name].weight.shape[0]
            for layer in model.model.layers
            for paths in SITES.values()
            for module in (layer.get_submodule(path) for path in paths)
            for name in self.names
            if name in getattr(module, "lora_A", ())
        ]
        self.rank = max(ranks, default=1)
        for layer in model.model.layers:
            sites = {}
            for site, paths in SITES.items():
                linears = [layer.get_submodule(path) for path in paths]
                outs = [linear.out_features for linear in linears]
                self._outs[site] = outs
                device = linears[0].weight.device
                a = torch.zeros(len(names), len(paths) * self.rank, linears[0].in_features, dtype=dtype, device=device)
                b = torch.zeros(len(names), sum(outs), self.rank, dtype=dtype, device=device)
                starts = [sum(outs[:i]) for i in range(len(outs))]
                blocks = [
                    (s + at, min(_BN, n - at), i)
                    for i, (s, n) in enumerate(zip(starts, outs, strict=True))
                    for at in range(0, n, _BN)
                ]
                sites[site] = (a, b, torch.tensor(blocks, dtype=torch.int32, device=device))
            self._sites.append(sites)
        covered = sum(len(paths) for paths in SITES.values()) * len(self._sites)
        adapted = sum(any(name in getattr(module, "lora_A", ()) for name in self.names) for module in model.modules())
        if adapted > covered or any(name in getattr(model.lm_head, "lora_A", ()) for name in self.names):
            raise CoterieError("players can only be decoded together when their adapters are on the projections of the layers")
        self.refill(model)

    def index(self, name: str | None) -> int:
        """Where the adapter stands in the stack; -1, no adapter, for None."""
        return -1 if name is None else self.names.index(name)

    @torch.no_grad()
    def refill(self, model: Any) -> None:
        for layer, sites in zip(model.model.layers, self._sites, strict=True):
            for site, paths in SITES.items():
                a, b, _ = sites[site]
                first = 0
                for part, path in enumerate(paths):
                    linear = layer.get_submodule(path)
                    rows = slice(first, first + linear.out_features)
                    first = rows.stop
                    for i, name in enumerate(self.names):
                        if name in getattr(linear, "lora_A", ()):
                            weight = linear.lora_A[name].weight
                            a[i, part * self.rank : part * self.rank + len(weight)] = weight
                            b[i, rows, : len(weight)] = linear.lora_B[name].weight.float() * linear.scaling[name]

    def add(self, y: torch.Tensor, x: torch.Tensor, layer: int, site: str, adapter: int | torch.Tensor) -> None:
        """Adds the update of x (rows, in) to y (rows, out) in place: of one adapter for all rows (a prefill), or of each row's
        own (int32, rows)."""
        a, b, blocks = self._sites[layer][site]
        if isinstance(adapter, int):
            if adapter >= 0:
                low = F.linear(x, a[adapter]).split(self.rank, 1)
                ups, outs = b[adapter].split(self._outs[site]), y.split(self._outs[site], 1)
                for h, up, out in zip(low, ups, outs, strict=True):
                    out.addmm_(h, up.t())
            return
        h = F.linear(x, a.flatten(0, 1))
        rows = 16 if len(x) <= 16 else 32
        _expand[(len(blocks), triton.cdiv(len(x), rows))](
            h, b, y, blocks, adapter, len(x), b.shape[1], a.shape[1], self.rank, len(self.names),
            rows, _BN, max(16, triton.next_power_of_2(self.rank)), num_warps=4,
        )  # fmt: skip
