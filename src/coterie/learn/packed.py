"""The learner's forward pass on rows laid end to end, without padding: what runs on a GPU.

The same numbers as the model's own forward pass on each row alone, up to rounding: the frozen products are the model's, adapters go
through `lowrank`, the steps between through `ops`, attention stays within a row, and positions count from each row's first token.
What several rows begin with is computed once (`rows.pack`).
T tokens of all rows together, N completion tokens, n of a chunk, E width, H query heads, K key heads, D head size, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from coterie.engines.decoder import unsupported
from coterie.learn.lowrank import Linear, feed_forward, linear_of, project
from coterie.learn.ops import add_norm, log_softmax, norm, product, rotate
from coterie.learn.rows import Batch, Layout

LOGIT_BYTES = 512 * 2**20
"""Most bytes of fp32 logits that exist at once; their slopes, in the model's precision, take half as much again."""


def why_not_packed(model: Any) -> str | None:
    """Why `model`, trained as it is set up, has to take its own forward pass on padded rows; None where packing works."""
    if not hasattr(model, "peft_config"):
        return "all of its weights are trained"
    if any(parameter.requires_grad and "lora_" not in name for name, parameter in model.named_parameters()):
        return "weights outside of the adapter are trained"
    if len(model.active_adapters) != 1:
        return "several adapters are active at once"
    causal = model.get_base_model()
    reason = unsupported(causal)
    if reason:
        return reason
    if hasattr(causal.lm_head, "base_layer") or causal.lm_head.bias is not None:
        return "its head has an adapter or a bias"
    if any(hasattr(module, "base_layer") for module in (causal.model.embed_tokens, causal.model.norm)):
        return "its embeddings have an adapter"
    adapter = model.peft_config[model.active_adapters[0]]
    if adapter.lora_dropout or adapter.use_dora or adapter.lora_bias:
        return "its adapter has dropout, a bias or magnitudes"
    return None


def _flash_takes(q_THD: Tensor) -> bool:
    """Whether torch's flash attention over rows of any length (2307.08691) can take these queries."""
    if not q_THD.is_cuda or q_THD.dtype not in (torch.bfloat16, torch.float16):
        return False
    return torch.cuda.get_device_capability(q_THD.device) >= (8, 0) and q_THD.shape[-1] % 8 == 0 and q_THD.shape[-1] <= 256


class _Gather(Function):
    """x[index], where the gradient of what is taken several times is summed in fp32."""

    @staticmethod
    def forward(ctx: Any, x_TKD: Tensor, index_M: Tensor) -> Any:
        ctx.save_for_backward(index_M)
        ctx.shape, ctx.dtype = x_TKD.shape, x_TKD.dtype
        return x_TKD.index_select(0, index_M)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (index_M,) = ctx.saved_tensors
        sums = torch.zeros(ctx.shape, dtype=torch.float32, device=index_M.device)
        return sums.index_add_(0, index_M, gradients[0].float()).to(ctx.dtype), None


def attend(q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor, layout: Layout) -> Tensor:
    """Causal attention of each row's own tokens to all of its tokens (T, H, D)."""
    if layout.key_M is not None:
        k_TKD, v_TKD = (_Gather.apply(x, layout.key_M) for x in (k_TKD, v_TKD))
    if _flash_takes(q_THD):
        # its causal mask is aligned with each row's end, which is what a row's own tokens are
        bounds = layout.own_bounds, layout.whole_bounds
        attention = torch.ops.aten._flash_attention_forward
        return attention(q_THD, k_TKD, v_TKD, *bounds, max(layout.own), max(layout.whole), 0.0, True, False)[0]
    rows = zip(q_THD.split(layout.own), k_TKD.split(layout.whole), v_TKD.split(layout.whole), strict=True)
    return torch.cat([_attend_row(*row) for row in rows])


def _attend_row(q_THD: Tensor, k_TKD: Tensor, v_TKD: Tensor) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q_THD, k_TKD, v_TKD))
    own, whole = len(q_THD), len(k_TKD)
    mask = torch.ones(own, whole, dtype=torch.bool, device=q.device).tril(whole - own)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)


@dataclass(frozen=True, slots=True)
class _Layer:
    qkv: tuple[Linear, Linear, Linear]
    out: Linear
    feed_forward: tuple[Linear, Linear, Linear]
    norm_attention: Tensor
    norm_feed_forward: Tensor
    norm_q: Tensor | None
    norm_k: Tensor | None
    head_size: int
    eps: float

    def __call__(
        self, x_TE: Tensor, delta_TE: Tensor | None, cos_TD: Tensor, sin_TD: Tensor, layout: Layout
    ) -> tuple[Tensor, Tensor]:
        """The residual stream and what is still to be added to it, which the next norm does on its way."""
        if delta_TE is None:
            normed_TE = norm(x_TE, self.norm_attention, self.eps)
        else:
            x_TE, normed_TE = add_norm(x_TE, delta_TE, self.norm_attention, self.eps)
        q, k, v = (y.view(len(x_TE), -1, self.head_size) for y in project(normed_TE, *self.qkv))
        q = rotate(self._head_norm(q, self.norm_q), cos_TD, sin_TD)
        k = rotate(self._head_norm(k, self.norm_k), cos_TD, sin_TD)
        (attended_TE,) = project(attend(q, k, v, layout).flatten(1), self.out)
        x_TE, normed_TE = add_norm(x_TE, attended_TE, self.norm_feed_forward, self.eps)
        return x_TE, feed_forward(normed_TE, *self.feed_forward)

    def _head_norm(self, x_THD: Tensor, weight_D: Tensor | None) -> Tensor:
        return x_THD if weight_D is None else norm(x_THD.reshape(-1, self.head_size), weight_D, self.eps).view(x_THD.shape)


def _layer(module: Any, config: Any) -> _Layer:
    attention, mlp = module.self_attn, module.mlp
    return _Layer(
        qkv=(linear_of(attention.q_proj), linear_of(attention.k_proj), linear_of(attention.v_proj)),
        out=linear_of(attention.o_proj),
        feed_forward=(linear_of(mlp.gate_proj), linear_of(mlp.up_proj), linear_of(mlp.down_proj)),
        norm_attention=module.input_layernorm.weight,
        norm_feed_forward=module.post_attention_layernorm.weight,
        norm_q=attention.q_norm.weight if hasattr(attention, "q_norm") else None,
        norm_k=attention.k_norm.weight if hasattr(attention, "k_norm") else None,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads,
        eps=config.rms_norm_eps,
    )


def hidden_states(model: Any, batch: Batch, *, recompute: bool = False) -> Tensor:
    """Final hidden states (T, E), normed, of a packed batch. With `recompute`, layers are computed again in the backward pass."""
    layout = batch.layout
    assert layout is not None, "a padded batch"
    causal = model.get_base_model()
    x_TE = F.embedding(batch.ids_BT[0], causal.model.embed_tokens.weight)
    # The residual stream is fp32, as the sampler's on a GPU: in bf16 it would be the largest single source of noise.
    cos_TD, sin_TD = (t[0].contiguous() for t in causal.model.rotary_emb(x_TE[None], layout.position_T[None]))
    x_TE = x_TE.float()
    delta_TE = None
    for module in causal.model.layers:
        layer = _layer(module, causal.config)
        if recompute:
            x_TE, delta_TE = checkpoint(layer, x_TE, delta_TE, cos_TD, sin_TD, layout, use_reentrant=False)  # pyright: ignore
        else:
            x_TE, delta_TE = layer(x_TE, delta_TE, cos_TD, sin_TD, layout)
    assert delta_TE is not None
    return add_norm(x_TE, delta_TE, causal.model.norm.weight, causal.config.rms_norm_eps)[1]


class _Head(Function):
    """Log-probabilities from hidden states, through a frozen head.

    A token's log-probability is one number, and its gradient in the hidden state, sum_v (1[v = target] - p_v) W_v / T, does not
    depend on the loss: it is made at once, while the chunk's logits exist, and later only scaled. That is two products, against
    three when the chunk is recomputed; what is kept is as small as the hidden states.
    """

    @staticmethod
    def forward(ctx: Any, hidden_ND: Tensor, weight_VD: Tensor, target_N: Tensor, temperature_N: Tensor, size: int) -> Any:
        dtype = hidden_ND.dtype if ctx.needs_input_grad[0] else None
        logprobs, slopes = [], []
        for h, target, t in zip(hidden_ND.split(size), target_N.split(size), temperature_N.split(size), strict=True):
            logprob_n, slope_nV = log_softmax(product(h, weight_VD.t()), target, t, dtype)
            logprobs.append(logprob_n)
            if slope_nV is not None:
                slopes.append(product(slope_nV, weight_VD))
        if slopes:
            ctx.save_for_backward(torch.cat(slopes))
        ctx.dtype = dtype
        return torch.cat(logprobs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (slope_ND,) = ctx.saved_tensors
        return (slope_ND * gradients[0][:, None]).to(ctx.dtype), None, None, None, None


def packed_logprobs(model: Any, batch: Batch, *, recompute: bool = False, logit_bytes: int = LOGIT_BYTES) -> Tensor:
    """What `loss.completion_logprobs` gives, for a packed batch: log-probabilities (N, nats, fp32) under softmax(logits / T).

    Logits are kept in fp32 whatever the model's precision: in bf16 those of a sure token would be 0.06 to 0.12 nats apart.
    """
    weight_VD = model.get_base_model().lm_head.weight
    hidden_ND = hidden_states(model, batch, recompute=recompute).index_select(0, batch.source_N)
    size = max(1, logit_bytes // (4 * len(weight_VD)))
    return _Head.apply(hidden_ND, weight_VD, batch.target_N, batch.temperature_N, size)  # pyright: ignore[reportReturnType]
