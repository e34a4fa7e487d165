# pyright: reportMissingImports=false, reportIndexIssue=false
"""Several adapters in one batch: each row's products get the low-rank update of that row's own adapter.

The adapters of one model are stacked: for each fused product of a layer, A (adapters, parts r, in) and B (adapters, out, r), where
a fused product has several parts (q, k, v; gate, up) with an A each, and r is the largest rank (smaller ones are padded with
zeros). The scaling is folded into B. Rows with adapter -1 play the base. Two small kernels a product read each row's A and B
from the second-level cache; slower than merged weights, and the only way when seats of one batch play different adapters.
"""

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

SITES: dict[str, tuple[str, ...]] = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}


@triton.jit
def _shrink(x, a, out, adapter, IN, R, BR: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    which = tl.load(adapter + row).to(tl.int64)
    if which < 0:
        return
    r = tl.program_id(1) * BR + tl.arange(0, BR)
    acc = tl.zeros((BR,), tl.float32)
    for at in range(0, IN, BK):
        k = at + tl.arange(0, BK)
        tile = tl.load(a + (which * R + r[:, None]) * IN + k[None, :], mask=(r < R)[:, None] & (k < IN)[None, :], other=0.0)
        acc += tl.sum(tile.to(tl.float32) * tl.load(x + row * IN + k, mask=k < IN, other=0.0).to(tl.float32)[None, :], 1)
    tl.store(out + row * R + r, acc, mask=r < R)


@triton.jit
def _expand(h, b, y, part, adapter, OUT, R, RANK, BN: tl.constexpr, RP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    which = tl.load(adapter + row).to(tl.int64)
    if which < 0:
        return
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    r = tl.arange(0, RP)
    live = n < OUT
    both = live[:, None] & (r < RANK)[None, :]
    tile = tl.load(b + (which * OUT + n[:, None]) * RANK + r[None, :], mask=both, other=0.0).to(tl.float32)
    own = tl.load(part + n, mask=live, other=0)[:, None] * RANK + r[None, :]
    update = tl.sum(tile * tl.load(h + row * R + own, mask=both, other=0.0), 1)
    at = y + row * OUT + n
    tl.store(at, (tl.load(at, mask=live, other=0.0).to(tl.float32) + update).to(y.dtype.element_ty), mask=live)


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
                part = torch.repeat_interleave(torch.arange(len(outs), dtype=torch.int32), torch.tensor(outs)).to(device)
                sites[site] = (a, b, part)
            self._sites.append(sites)
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
        a, b, part = self._sites[layer][site]
        if isinstance(adapter, int):
            if adapter >= 0:
                h = x @ a[adapter].t()
                halves = zip(h.split(self.rank, 1), b[adapter].split(self._outs[site]), y.split(self._outs[site], 1), strict=True)
                for low, up, out in halves:
                    out.addmm_(low, up.t())
            return
        h = torch.empty(len(x), a.shape[1], dtype=torch.float32, device=x.device)
        _shrink[(len(x), triton.cdiv(a.shape[1], 4))](x, a, h, adapter, a.shape[2], a.shape[1], 4, 1024, num_warps=4)
        _expand[(len(x), triton.cdiv(b.shape[1], 256))](
            h, b, y, part, adapter, b.shape[1], a.shape[1], self.rank, 256, max(2, triton.next_power_of_2(self.rank)), num_warps=4
        )
