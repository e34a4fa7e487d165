"""The policy-gradient loss, in pure functions.

Letters in names: B rows, T positions, N completion tokens of a batch, n of a chunk, D width, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from coterie.config import LossConfig
from coterie.learn.rows import Batch
from coterie.types import CoterieError, Row

LOGIT_BYTES = 256 * 2**20
"""Most bytes of fp32 logits that exist at once (a few copies of them live within one chunk)."""

_LOGIT_CHANGES = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")
"""Configuration keys by which a model changes its logits after the head: Gemma 2, Cohere, Granite, Falcon-H1."""


def causal_parts(model: Any) -> tuple[Any, Any]:
    """The transformer (ids to final hidden states) and the head (hidden states to logits) of a causal model, PEFT or plain."""
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    return getattr(causal, causal.base_model_prefix), causal.get_output_embeddings()


def check_head(model: Any) -> None:
    """Make sure that the logits are the head's output and nothing else, so that they may be computed at chosen positions.

    Reads the configuration, then compares on a three-token probe, which catches changes whose key is not known here.

    Raises CoterieError.
    """
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    name = type(causal).__name__
    for key in _LOGIT_CHANGES:
        value = getattr(causal.config, key, None)
        if value is not None and value != 1:
            raise CoterieError(f"model.path: {name} changes its logits ({key} = {value}), which the loss does not do; use another")
    transformer, head = causal_parts(model)
    if head is None:
        raise CoterieError(f"model.path: {name} has no output head; use a causal language model")
    probe_BT = torch.tensor([[0, 1, 2]], device=next(causal.parameters()).device)
    was_training = model.training
    model.eval()
    with torch.no_grad():
        whole_BTV = causal(input_ids=probe_BT, use_cache=False).logits.float()
        parts_BTV = head(transformer(input_ids=probe_BT, use_cache=False).last_hidden_state).float()
    model.train(was_training)
    if whole_BTV.shape != parts_BTV.shape or not torch.allclose(whole_BTV, parts_BTV, rtol=1e-3, atol=1e-5):
        raise CoterieError(f"model.path: {name} changes its logits after the head, which the loss does not do; use another")


def _chunk_logprobs(head: nn.Module, hidden_nD: Tensor, target_n: Tensor, temperature_n: Tensor) -> Tensor:
    logits_nV = head(hidden_nD)
    logits_nV = logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32)) / temperature_n[:, None]
    return torch.log_softmax(logits_nV, dim=-1).gather(1, target_n[:, None])[:, 0]


def completion_logprobs(model: Any, batch: Batch, *, logit_bytes: int = LOGIT_BYTES) -> Tensor:
    """Log-probabilities (N, nats, fp32) of the completion tokens under softmax(logits / T), each at its row's temperature T.

    The head runs at completion positions only, in chunks of at most `logit_bytes` of fp32 logits. With more than one chunk, each is
    recomputed in the backward pass, so that logits of the whole batch (16 384 tokens of a 152 000-word vocabulary: 10 GB) never
    exist; the price is one more pass through the head. The prediction of a token is read one position before it, the first from
    the prompt's last token and the last token's, which is the end-of-message token of a finished message, from the one before.
    """
    transformer, head = causal_parts(model)
    hidden_BTD = transformer(input_ids=batch.ids_BT, use_cache=False).last_hidden_state
    hidden_ND = hidden_BTD[batch.row_N, batch.source_N]
    size = max(1, logit_bytes // (4 * head.out_features))
    if len(hidden_ND) <= size:
        return _chunk_logprobs(head, hidden_ND, batch.target_N, batch.temperature_N)
    pieces = zip(hidden_ND.split(size), batch.target_N.split(size), batch.temperature_N.split(size), strict=True)
    return torch.cat([checkpoint(_chunk_logprobs, head, *piece, use_reentrant=False) for piece in pieces])


def token_weights(rows: Sequence[Row], config: LossConfig) -> list[float]:
    """For each row, the weight of each of its tokens, such that the step's loss is the plain sum of weight times token loss.

    Computed once from *all* rows of a step, before zero-advantage rows are dropped and before rows are cut into micro-batches or
    spread over processes; so none of these changes the loss. With R rows of lengths L_r:

    - "tokens": 1 / sum_r L_r. Every policy token of the step counts alike, rows of zero advantage included: DAPO (2503.14476,
      eq. 8).
    - "live_tokens": 1 / sum of L_r over rows whose advantage is not exactly 0. Step size does not shrink as more groups agree.
    - "sequences": 1 / (R L_r). A mean over each message's tokens, then over messages: GRPO (2402.03300, eq. 3). Tokens of short
      messages weigh more.
    - "constant": 1 / (R C) with C = `constant_length`: Dr. GRPO (2503.20783, section 3.2), free of the length bias.
    """
    lengths = [len(row.completion_ids) for row in rows]
    match config.normaliser:
        case "tokens":
            total = sum(lengths)
            return [1.0 / total for _ in rows]
        case "live_tokens":
            total = sum(length for length, row in zip(lengths, rows, strict=True) if row.advantage != 0.0)
            return [1.0 / total if row.advantage != 0.0 else 0.0 for row in rows]
        case "sequences":
            return [1.0 / (len(rows) * length) for length in lengths]
        case "constant":
            assert config.constant_length is not None  # LossConfig refuses otherwise
            return [1.0 / (len(rows) * config.constant_length) for _ in rows]


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """The loss of a micro-batch, and what is logged about it."""

    loss: Tensor
    """Scalar: a weighted sum; sum over micro-batches and processes for the step's loss."""
    ratio_N: Tensor
    """exp(learner minus sampler log-probability); detached."""
    clipped_N: Tensor
    """bool: where the clip took effect, so the token has no gradient."""


def policy_loss(
    logprob_N: Tensor, sampler_logprob_N: Tensor, advantage_N: Tensor, weight_N: Tensor, *, clip_low: float, clip_high: float
) -> PolicyLoss:
    """sum over tokens of weight * -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A), with r = exp(logprob - sampler_logprob).

    The clipped surrogate of PPO (1707.06347, eq. 7) with DAPO's separate upper bound (2503.14476, section 3.1). On policy r = 1,
    and its gradient is the plain policy gradient -A grad log p. Gradients flow through `logprob_N` only.
    """
    ratio_N = torch.exp(logprob_N - sampler_logprob_N)
    free_N = ratio_N * advantage_N
    bound_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high) * advantage_N
    loss = -(weight_N * torch.minimum(free_N, bound_N)).sum()
    return PolicyLoss(loss, ratio_N.detach(), (bound_N < free_N).detach())
