"""The decoder of `decoder` in few kernels: packed prefill and one decode step, over a cache that is written in place.

The cache is one tensor (layers, 2, slots, K, span, D). Nothing here waits for the device, so a decode step can be captured in a
CUDA graph. Shapes as in `kernels`.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from coterie.engines import kernels, kernels_gemm
from coterie.engines.decoder import Decoder
from coterie.engines.kernels_attention import AttentionScratch, decode_attention
from coterie.engines.lora import Stack
from coterie.engines.slots import Slots
from coterie.types import CoterieError

_GROWING_ROPE = ("dynamic", "longrope")


@dataclass(frozen=True, slots=True)
class Prompts:
    """Packed prompts. `ids`, `slot` and `position` are per token (N), `starts` (n + 1) the cumulative `lengths`; `adapter` is the
    index in the stack that all of them are read with."""

    ids: torch.Tensor
    slot: torch.Tensor
    position: torch.Tensor
    starts: torch.Tensor
    lengths: list[int]
    adapter: int = -1


class Forward:
    def __init__(self, decoder: Decoder, context_length: int, rows: int, stack: Stack | None = None):
        rope_type = getattr(decoder.rotary, "rope_type", "default")
        if rope_type in _GROWING_ROPE:
            raise CoterieError(f'engine.kind = "local" cannot run {rope_type} rotary positions on CUDA; set engine.kind=hf')
        self.decoder, self.stack, self.context_length = decoder, stack, context_length
        self.shape = (decoder.heads, decoder.key_heads, decoder.head_size)
        device = decoder.embedding.device
        positions = torch.arange(context_length, device=device)[None]
        cos, sin = decoder.rotary(decoder.embedding[:1], positions)
        half = decoder.head_size // 2
        self.rope = (cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous())
        self.scratch = AttentionScratch(rows, self.shape, device)
        # Logits leave the product in fp32: rounding them to bf16 would alone move a log-probability by some percent.
        self._wide = device.type == "cuda" and decoder.head.dtype != torch.float32 and "dtype" in torch.ops.aten.mm.overloads()

    def cache(self, slots: int, span: int) -> torch.Tensor:
        """Room for `slots` sequences and the spare one. Not cleared: what nobody has written nobody reads."""
        _, K, D = self.shape
        return self.decoder.embedding.new_empty(len(self.decoder.layers), 2, slots + 1, K, span, D)

    def bytes_per_position(self) -> int:
        _, K, D = self.shape
        return len(self.decoder.layers) * 2 * K * D * self.decoder.embedding.element_size()

    def prefill(self, prompts: Prompts, cache: torch.Tensor) -> torch.Tensor:
        """Reads the prompts into the cache; returns the logits after each one's last token, (n, V)."""
        d, H, K, D = self.decoder, *self.shape
        residual, x = kernels.embed_norm(d.embedding, prompts.ids, None, d.layers[0].norm_attention, d.eps, len(prompts.ids))
        last = (prompts.starts[1:] - 1).long()
        for index, layer in enumerate(d.layers):
            qkv = self._linear(x, layer.qkv, layer.qkv_bias, index, "qkv", prompts.adapter)
            norms = (layer.norm_q, layer.norm_k)
            kernels.read_rotate(qkv, cache[index], prompts.slot, prompts.position, self.rope, norms, self.shape, d.eps)
            q, k, v = qkv.view(-1, H + 2 * K, D).split((H, K, K), dim=1)
            x = self._linear(_varlen_attention(q, k, v, prompts), layer.out, layer.out_bias, index, "out", prompts.adapter)
            x = kernels.add_norm(x, residual, layer.norm_feed_forward, d.eps)
            x = kernels.silu_mul(self._linear(x, layer.gate_up, None, index, "gate_up", prompts.adapter))
            x = self._linear(x, layer.down, None, index, "down", prompts.adapter)
            if index + 1 < len(d.layers):
                x = kernels.add_norm(x, residual, d.layers[index + 1].norm_attention, d.eps)
        return self._logits(kernels.add_norm(x[last], residual[last], d.norm, d.eps))

    def decode(self, row_slot: torch.Tensor, slots: Slots, cache: torch.Tensor) -> torch.Tensor:
        """One token for each row's sequence: its last id is read at its position. Returns logits (B, V)."""
        d = self.decoder
        adapter = None if self.stack is None else slots.adapter.index_select(0, row_slot)
        past = slots.position.index_select(0, row_slot)
        narrow = self.stack is None and len(row_slot) <= kernels_gemm.MOST_ROWS and d.embedding.dtype != torch.float32
        residual, x = kernels.embed_norm(d.embedding, slots.last, row_slot, d.layers[0].norm_attention, d.eps, len(row_slot))
        for index, layer in enumerate(d.layers):
            qkv = self._linear(x, layer.qkv, layer.qkv_bias, index, "qkv", adapter)
            norms = (layer.norm_q, layer.norm_k)
            x = decode_attention(qkv, cache[index], row_slot, past, self.rope, norms, self.shape, d.eps, self.scratch)
            if narrow and layer.out_bias is None:
                x = kernels_gemm.parts(x, layer.out)
            else:
                x = self._linear(x, layer.out, layer.out_bias, index, "out", adapter)
            x = kernels.add_norm(x, residual, layer.norm_feed_forward, d.eps)
            if narrow:
                x = kernels_gemm.parts(kernels_gemm.gate_up(x, layer.gate_up), layer.down)
            else:
                x = kernels.silu_mul(self._linear(x, layer.gate_up, None, index, "gate_up", adapter))
                x = self._linear(x, layer.down, None, index, "down", adapter)
            x = kernels.add_norm(x, residual, d.norm if index + 1 == len(d.layers) else d.layers[index + 1].norm_attention, d.eps)
        return self._logits(x)

    def _linear(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        layer: int,
        site: str,
        adapter: int | torch.Tensor | None,
    ) -> torch.Tensor:
        y = F.linear(x, weight, bias)
        if self.stack is not None and adapter is not None:
            self.stack.add(y, x, layer, site, adapter)
        return y

    def _logits(self, x: torch.Tensor) -> torch.Tensor:
        if self._wide:
            return torch.mm(x, self.decoder.head.t(), out_dtype=torch.float32)
        return F.linear(x, self.decoder.head).float()


def _varlen_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, prompts: Prompts) -> torch.Tensor:
    """Causal attention within each prompt: (N, H, D), (N, K, D), (N, K, D) to (N, H D). The packed kernel takes half precision
    on CUDA; anything else is attended prompt by prompt."""
    longest = max(prompts.lengths)
    if q.is_cuda and q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] % 8 == 0:
        attended = torch.ops.aten._flash_attention_forward(
            q, k, v, prompts.starts, prompts.starts, longest, longest, 0.0, True, False, scale=q.shape[-1] ** -0.5
        )[0]
        return attended.reshape(len(q), -1)
    groups = q.shape[1] // k.shape[1]
    parts = []
    for one_q, one_k, one_v in zip(*(t.split(prompts.lengths) for t in (q, k, v)), strict=True):
        heads = [t.transpose(0, 1)[None] for t in (one_q, one_k.repeat_interleave(groups, 1), one_v.repeat_interleave(groups, 1))]
        parts.append(F.scaled_dot_product_attention(*heads, is_causal=True)[0].transpose(0, 1).flatten(1))
    return torch.cat(parts)
