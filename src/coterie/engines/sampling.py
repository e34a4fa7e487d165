"""Sampling by inverse CDF, with log-probabilities of the distribution that was sampled from."""

from collections.abc import Sequence

import torch

from coterie.engines.base import Sampler

_GRID = 2.0**-22
"""Uniforms are rounded down to this grid, so that `u * total` in float32 stays below `total` and a token always lies above it."""


def sample(logits_BV: torch.Tensor, samplers: Sequence[Sampler], uniforms_B: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sampled ids (B, int64) and their log-probabilities (B, float32, nats).

    Each row is the inverse of its own CDF at its own uniform, so a row's outcome depends on nothing but its logits and its
    uniform. The log-probability is that of the processed distribution: logits over temperature, and renormalised when top-p or
    top-k cut it. A greedy row reports the untempered log-probability.
    """
    temperature_B = torch.tensor([s.temperature or 1.0 for s in samplers], dtype=torch.float32, device=logits_BV.device)
    logits_BV = logits_BV.float() / temperature_B[:, None]
    if any(s.top_k or s.top_p < 1.0 for s in samplers):
        logits_BV = torch.stack([_truncate(row, s) for row, s in zip(logits_BV, samplers, strict=True)])
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    cdf_BV = logprobs_BV.exp().cumsum(dim=-1, dtype=torch.float64)
    target_B = (uniforms_B / _GRID).floor() * _GRID * cdf_BV[:, -1]
    ids_B = torch.searchsorted(cdf_BV, target_B[:, None], right=True)[:, 0].clamp(max=logits_BV.shape[-1] - 1)
    greedy_B = torch.tensor([s.temperature == 0 for s in samplers], device=logits_BV.device)
    if greedy_B.any():
        ids_B = torch.where(greedy_B, logits_BV.argmax(dim=-1), ids_B)
    return ids_B, logprobs_BV.gather(-1, ids_B[:, None])[:, 0]


def _truncate(logits_V: torch.Tensor, sampler: Sampler) -> torch.Tensor:
    """Keep the `top_k` likeliest tokens and, of those, the smallest set that holds `top_p` of the probability."""
    order_V = logits_V.argsort(descending=True, stable=True)
    keep_V = torch.ones_like(logits_V, dtype=torch.bool)
    if sampler.top_k:
        keep_V[sampler.top_k :] = False
    if sampler.top_p < 1.0:
        probabilities_V = torch.softmax(logits_V[order_V].masked_fill(~keep_V, -torch.inf), dim=-1)
        keep_V &= probabilities_V.cumsum(-1) - probabilities_V < sampler.top_p
    return logits_V.masked_fill(~torch.zeros_like(keep_V).scatter(0, order_V, keep_V), -torch.inf)
