"""A transformer decoder as plain functions over fused weights: what the local engine runs instead of the model's own forward.

Covers the Llama family as transformers builds it (Llama, SmolLM2, Qwen2, Qwen2.5, Qwen3, Mistral without a window): RMS norms
before each half layer, rotary positions, grouped-query attention, gated feed-forward. Q, K and V are one product, and so are gate
and up. Anything else is refused with the remedy, never computed wrongly; the engine's tests hold every covered architecture to
transformers.

Shapes: B sequences, T positions, H query heads, K key heads, D head size, E model width, V vocabulary.
"""

from dataclasses import dataclass, fields
from typing import Any

import torch
import torch.nn.functional as F

from coterie.engines.players import Players
from coterie.types import BASE, CoterieError, Player

SUPPORTED = ("llama", "qwen2", "qwen3", "mistral")


@dataclass(frozen=True, slots=True)
class Layer:
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    out_bias: torch.Tensor | None
    gate_up: torch.Tensor
    down: torch.Tensor
    norm_attention: torch.Tensor
    norm_feed_forward: torch.Tensor
    norm_q: torch.Tensor | None
    norm_k: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class Decoder:
    """All that a forward pass needs; immutable, made anew when the weights change."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: torch.Tensor
    rotary: Any
    heads: int
    key_heads: int
    head_size: int
    eps: float


def unsupported(model: Any) -> str | None:
    """Why this model cannot be run by these functions, or None."""
    config = model.config
    if config.model_type not in SUPPORTED:
        return f"model type {config.model_type} is not one of {', '.join(SUPPORTED)}"
    if any(kind == "sliding_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "it uses sliding-window attention"
    if config.model_type == "mistral" and config.sliding_window is not None:
        return "it uses sliding-window attention"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its activation is {config.hidden_act}"
    if model.model.layers[0].mlp.gate_proj.bias is not None:
        return "its feed-forward layers have biases"
    return None


@torch.no_grad()
def build(players: Players, player: Player) -> Decoder:
    """Fuse the weights that `player` plays with. With the adapter, each product is computed with the merged weight."""
    with players.as_module(player) as model:
        reason = unsupported(model)
        if reason:
            raise CoterieError(f'engine.kind = "local" cannot run this model ({reason}); set engine.kind=hf')

        def weight(linear: Any) -> torch.Tensor:
            return players.weight(linear, player)

        layers = []
        for layer in model.model.layers:
            attention, feed_forward = layer.self_attn, layer.mlp
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            layers.append(
                Layer(
                    qkv=torch.cat([weight(p) for p in projections]),
                    qkv_bias=None if attention.q_proj.bias is None else torch.cat([p.bias.detach() for p in projections]),
                    out=weight(attention.o_proj),
                    out_bias=None if attention.o_proj.bias is None else attention.o_proj.bias.detach(),
                    gate_up=torch.cat([weight(feed_forward.gate_proj), weight(feed_forward.up_proj)]),
                    down=weight(feed_forward.down_proj),
                    norm_attention=layer.input_layernorm.weight.detach(),
                    norm_feed_forward=layer.post_attention_layernorm.weight.detach(),
                    norm_q=attention.q_norm.weight.detach() if hasattr(attention, "q_norm") else None,
                    norm_k=attention.k_norm.weight.detach() if hasattr(attention, "k_norm") else None,
                )
            )
        config = model.config
        return Decoder(
            embedding=model.model.embed_tokens.weight.detach(),
            layers=tuple(layers),
            norm=model.model.norm.weight.detach(),
            head=weight(model.lm_head),
            rotary=model.model.rotary_emb,
            heads=config.num_attention_heads,
            key_heads=config.num_key_value_heads,
            head_size=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
            eps=config.rms_norm_eps,
        )


@torch.no_grad()
def refill(decoder: Decoder, players: Players, player: Player) -> None:
    """Fuse the weights again into the memory that `decoder` holds, so that captured graphs keep reading the right addresses."""
    new = build(players, player)
    pairs = [(decoder.embedding, new.embedding), (decoder.norm, new.norm), (decoder.head, new.head)]
    for old_layer, new_layer in zip(decoder.layers, new.layers, strict=True):
        pairs += [(getattr(old_layer, f.name), getattr(new_layer, f.name)) for f in fields(Layer)]
    for old, fresh in pairs:
        if old is not None and old.data_ptr() != fresh.data_ptr():
            old.copy_(fresh)


@torch.no_grad()
def share(decoder: Decoder, players: Players) -> None:
    """Make the frozen base's own projections views of the fused weights, so that learner and sampler hold one copy of them."""
    with players.as_module(BASE) as model:
        for layer, own in zip(model.model.layers, decoder.layers, strict=True):
            attention, feed_forward = layer.self_attn, layer.mlp
            for linears, fused in (
                ((attention.q_proj, attention.k_proj, attention.v_proj), own.qkv),
                ((feed_forward.gate_proj, feed_forward.up_proj), own.gate_up),
            ):
                weights = [getattr(linear, "base_layer", linear).weight for linear in linears]
                for weight, rows in zip(weights, fused.split([len(w) for w in weights]), strict=True):
                    if not weight.requires_grad:
                        weight.data = rows


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


def _project(decoder: Decoder, layer: Layer, x_BTE: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, ...]:
    B, T, _ = x_BTE.shape
    H, K, D = decoder.heads, decoder.key_heads, decoder.head_size
    qkv = F.linear(F.rms_norm(x_BTE, x_BTE.shape[-1:], layer.norm_attention, decoder.eps), layer.qkv, layer.qkv_bias)
    q, k, v = qkv.view(B, T, H + 2 * K, D).split((H, K, K), dim=2)
    if layer.norm_q is not None:
        q = F.rms_norm(q, (D,), layer.norm_q, decoder.eps)
        k = F.rms_norm(k, (D,), layer.norm_k, decoder.eps)
    return _rotate(q, cos, sin), _rotate(k, cos, sin), v


def _feed_forward(decoder: Decoder, layer: Layer, x_BTE: torch.Tensor) -> torch.Tensor:
    gate, up = F.linear(F.rms_norm(x_BTE, x_BTE.shape[-1:], layer.norm_feed_forward, decoder.eps), layer.gate_up).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, layer.down)


def _cos_sin(decoder: Decoder, x: torch.Tensor, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(B, T, 1, D) each, by the model's own rotary module, so that every scaling scheme of transformers is covered."""
    cos, sin = decoder.rotary(x, positions)
    return cos[:, :, None], sin[:, :, None]


def prefill(
    decoder: Decoder, ids_BT: torch.Tensor, lengths_B: torch.Tensor
) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
    """Read right-padded prompts. Returns the logits (B, V) after each prompt's last token, and per layer its keys and values,
    (B, K, T, D) each; those at or after a row's length are padding. No mask is needed: a causal row never sees its own padding."""
    x_BTE = F.embedding(ids_BT, decoder.embedding)
    positions = torch.arange(ids_BT.shape[1], device=ids_BT.device)[None]
    cos, sin = _cos_sin(decoder, x_BTE, positions)
    cache = []
    for layer in decoder.layers:
        q, k, v = (t.transpose(1, 2) for t in _project(decoder, layer, x_BTE, cos, sin))
        cache.append((k, v))
        groups = decoder.heads // decoder.key_heads
        attended = F.scaled_dot_product_attention(q, k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1), is_causal=True)
        x_BTE = x_BTE + F.linear(attended.transpose(1, 2).flatten(2), layer.out, layer.out_bias)
        x_BTE = x_BTE + _feed_forward(decoder, layer, x_BTE)
    last_BE = x_BTE[torch.arange(len(ids_BT), device=ids_BT.device), lengths_B - 1]
    return F.linear(F.rms_norm(last_BE, last_BE.shape[-1:], decoder.norm, decoder.eps), decoder.head), cache


def decode(
    decoder: Decoder, ids_B: torch.Tensor, positions_B: torch.Tensor, cache: list[tuple[torch.Tensor, torch.Tensor]], span: int
) -> torch.Tensor:
    """One token for each sequence: writes its keys and values at `positions_B` of the cache (per layer (B, K, T, D)), attends
    to positions 0..positions_B within the first `span` of the cache, and returns logits (B, V)."""
    B = len(ids_B)
    x_BTE = F.embedding(ids_B, decoder.embedding)[:, None]
    cos, sin = _cos_sin(decoder, x_BTE, positions_B[:, None])
    rows_B = torch.arange(B, device=ids_B.device)
    mask = (torch.arange(span, device=ids_B.device)[None] <= positions_B[:, None])[:, None, None]
    for layer, (keys, values) in zip(decoder.layers, cache, strict=True):
        q, k, v = _project(decoder, layer, x_BTE, cos, sin)
        keys[rows_B, :, positions_B] = k[:, 0]
        values[rows_B, :, positions_B] = v[:, 0]
        # The query heads that share a key head are taken as that head's query positions: no key is repeated.
        q = q.view(B, decoder.key_heads, -1, decoder.head_size)
        attended = F.scaled_dot_product_attention(q, keys[:, :, :span], values[:, :, :span], attn_mask=mask)
        x_BTE = x_BTE + F.linear(attended.reshape(B, 1, -1), layer.out, layer.out_bias)
        x_BTE = x_BTE + _feed_forward(decoder, layer, x_BTE)
    return F.linear(F.rms_norm(x_BTE[:, 0], x_BTE.shape[-1:], decoder.norm, decoder.eps), decoder.head)
