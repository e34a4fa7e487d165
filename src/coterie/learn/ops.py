"""The steps of a decoder layer between its products, each with its backward pass written out.

On CUDA they run as one kernel each (`kernels`); the plain torch given here is what those are tested against, and what other devices
run. All compute in fp32 and round where transformers and
the sampler round. T tokens, E width, H heads, D head size, I inner width, n positions, V vocabulary.
"""

import importlib.util
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

_HAS_TRITON = importlib.util.find_spec("triton") is not None


def _kernels(tensor: Tensor) -> Any:
    """The module of kernels where they can run, else None."""
    if tensor.is_cuda and _HAS_TRITON:
        from coterie.learn import kernels

        return kernels
    return None


class _AddNorm(Function):
    @staticmethod
    def forward(ctx: Any, x_TE: Tensor, delta_TE: Tensor | None, weight_E: Tensor, eps: float) -> Any:
        if kernels := _kernels(x_TE):
            total_TE, normed_TE, rstd_T = kernels.add_norm(x_TE, delta_TE, weight_E, eps)
        else:
            total_TE = x_TE if delta_TE is None else x_TE + delta_TE
            wide_TE = total_TE.float()
            rstd_T = torch.rsqrt(wide_TE.square().mean(-1) + eps)
            normed_TE = (wide_TE * rstd_T[:, None]).to(weight_E.dtype) * weight_E
        ctx.save_for_backward(total_TE, rstd_T)
        ctx.weight_E, ctx.dtype = weight_E, None if delta_TE is None else delta_TE.dtype
        return normed_TE if delta_TE is None else (total_TE, normed_TE)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        (total_TE, rstd_T), weight_E = ctx.saved_tensors, ctx.weight_E
        direct_TE, gradient_TE = gradients if len(gradients) == 2 else (None, gradients[0])
        if kernels := _kernels(total_TE):
            whole = None if direct_TE is None else direct_TE.contiguous()
            dtype = ctx.dtype or total_TE.dtype
            result_TE, delta_TE = kernels.norm_backward(gradient_TE.contiguous(), whole, total_TE, weight_E, rstd_T, dtype)
        else:
            hat_TE = total_TE.float() * rstd_T[:, None]
            weighted_TE = gradient_TE.float() * weight_E.float()
            wide_TE = rstd_T[:, None] * (weighted_TE - hat_TE * (weighted_TE * hat_TE).mean(-1, keepdim=True))
            wide_TE = wide_TE if direct_TE is None else wide_TE + direct_TE.float()
            result_TE, delta_TE = wide_TE.to(total_TE.dtype), wide_TE.to(ctx.dtype or total_TE.dtype)
        return result_TE, None if ctx.dtype is None else delta_TE, None, None


def norm(x_TE: Tensor, weight_E: Tensor, eps: float) -> Tensor:
    """RMS norm over the last axis (1910.07467), with a frozen weight, whose precision the result has."""
    return _AddNorm.apply(x_TE, None, weight_E, eps)  # pyright: ignore[reportReturnType]


def add_norm(x_TE: Tensor, delta_TE: Tensor, weight_E: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x + delta, in the precision of x, and its RMS norm, in that of the weight."""
    return _AddNorm.apply(x_TE, delta_TE, weight_E, eps)  # pyright: ignore[reportReturnType]


class _Rotate(Function):
    @staticmethod
    def forward(ctx: Any, x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Any:
        ctx.save_for_backward(cos_TD, sin_TD)
        return _rotated(x_THD, cos_TD, sin_TD, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        cos_TD, sin_TD = ctx.saved_tensors
        return _rotated(gradients[0].contiguous(), cos_TD, sin_TD, -1), None, None


def _rotated(x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor, sign: int) -> Tensor:
    if kernels := _kernels(x_THD):
        return kernels.rotate(x_THD, cos_TD, sin_TD, sign)
    left, right = x_THD.float().chunk(2, dim=-1)
    cos, sin = (t.float()[:, None, : t.shape[-1] // 2] for t in (cos_TD, sin_TD))
    return torch.cat((left * cos - right * sin * sign, right * cos + left * sin * sign), dim=-1).to(x_THD.dtype)


def rotate(x_THD: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
    """Rotary positions (2104.09864) in the layout of the Llama family, whose two halves share their angles."""
    return _Rotate.apply(x_THD, cos_TD, sin_TD)  # pyright: ignore[reportReturnType]


def gate(gate_TI: Tensor, up_TI: Tensor) -> Tensor:
    """silu(gate) * up; its backward pass is `gate_backward`, called by the product that follows."""
    if kernels := _kernels(gate_TI):
        return kernels.gate(gate_TI, up_TI)
    return F.silu(gate_TI) * up_TI


def gate_backward(gate_TI: Tensor, up_TI: Tensor, gradient_TI: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """silu(gate) * up once more, and the gradients of gate and up. May write over `gradient_TI`."""
    if kernels := _kernels(gate_TI):
        return kernels.gate_backward(gate_TI, up_TI, gradient_TI)
    g, u, d = gate_TI.float(), up_TI.float(), gradient_TI.float()
    sigma = torch.sigmoid(g)
    parts = ((g * sigma).to(gate_TI.dtype) * up_TI, d * u * sigma * (1 + g * (1 - sigma)), d * g * sigma)
    return tuple(part.to(gate_TI.dtype) for part in parts)  # pyright: ignore[reportReturnType]


def log_softmax(
    logits_nV: Tensor, target_n: Tensor, temperature_n: Tensor, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor | None]:
    """Log-probability (n, fp32) of each target under softmax(logits / T) and, in `dtype` unless None, its slope in the logits:
    (1[v = target] - p_v) / T. The subtraction is made in fp32, so that a sure token's small slope keeps its digits."""
    if kernels := _kernels(logits_nV):
        return kernels.log_softmax(logits_nV, target_n, temperature_n, dtype)
    every_nV = torch.log_softmax(logits_nV / temperature_n[:, None], dim=-1)
    logprob_n = every_nV.gather(1, target_n[:, None])[:, 0]
    if dtype is None:
        return logprob_n, None
    slope_nV = -every_nV.exp()
    slope_nV[torch.arange(len(target_n), device=target_n.device), target_n] += 1.0
    return logprob_n, (slope_nV / temperature_n[:, None]).to(dtype)


def product(a_MK: Tensor, b_KN: Tensor) -> Tensor:
    """a @ b with its fp32 sums kept in fp32."""
    if a_MK.dtype == torch.float32:
        return a_MK @ b_KN
    if a_MK.is_cuda:
        return torch.mm(a_MK, b_KN, out_dtype=torch.float32)
    return a_MK.float() @ b_KN.float()
