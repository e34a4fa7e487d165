"""Frozen linear layers with a low-rank adapter, as PEFT builds them, computed without PEFT's fp32 copies of the activations.

    y = x W' + bias + scale (x A') B'          (' transposes; W frozen; A and B fp32 masters)

PEFT casts x to fp32 for its adapter and carries a result as wide as the layer in fp32 through four passes over memory, at several
times the cost of the frozen product itself. Here x A' and the update of y are made in the activations' precision with fp32 sums,
from copies of A and B rounded to it; the gradients of A and B are products of operands in that precision, summed and kept in fp32.
Gradients reach PEFT's own parameters, so names and checkpoints are PEFT's. Layers with the same input share the passes over it.

T tokens, I input and O output width, R rank (of all layers of a group, side by side).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional as F

from coterie.learn.ops import gate, gate_backward, product


@dataclass(frozen=True, slots=True)
class Linear:
    """One layer; `a_RI` and `b_OR` are None where it has no adapter."""

    weight_OI: Tensor
    bias_O: Tensor | None
    a_RI: Tensor | None = None
    b_OR: Tensor | None = None
    scale: float = 1.0


def linear_of(module: Any) -> Linear:
    """The layer that `module` is: a plain linear one, or PEFT's with one active adapter, which may leave this layer out."""
    if not hasattr(module, "base_layer"):
        return Linear(module.weight, module.bias)
    base, (name,) = module.base_layer, module.active_adapters
    if name not in module.lora_A:
        return Linear(base.weight, base.bias)
    return Linear(base.weight, base.bias, module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name])


def _ranks(linears: Sequence[Linear]) -> list[int]:
    return [0 if linear.a_RI is None else len(linear.a_RI) for linear in linears]


def _stacked_a(linears: Sequence[Linear], dtype: torch.dtype) -> Tensor | None:
    parts = [linear.a_RI.to(dtype) for linear in linears if linear.a_RI is not None]
    return torch.cat(parts) if parts else None


def _scaled_b(linear: Linear, dtype: torch.dtype) -> Tensor:
    assert linear.b_OR is not None
    return (linear.b_OR * linear.scale).to(dtype)


def _project(x_TI: Tensor, linears: Sequence[Linear]) -> tuple[list[Tensor], Tensor]:
    """Each layer's output, and x A' of all of them side by side (T, R)."""
    a_RI = _stacked_a(linears, x_TI.dtype)
    low_TR = x_TI.new_empty(len(x_TI), 0) if a_RI is None else F.linear(x_TI, a_RI)
    outputs = []
    for linear, low in zip(linears, low_TR.split(_ranks(linears), dim=1), strict=True):
        y_TO = F.linear(x_TI, linear.weight_OI, linear.bias_O)
        if linear.b_OR is not None:
            y_TO.addmm_(low, _scaled_b(linear, x_TI.dtype).t())
        outputs.append(y_TO)
    return outputs, low_TR


def _inputs_gradient(gradients: Sequence[Tensor], linears: Sequence[Linear], needed: bool) -> tuple[Tensor | None, Tensor]:
    """The gradients of x (None unless needed) and of x A' (T, R)."""
    dtype, count = gradients[0].dtype, len(gradients[0])
    parts = [d_TO @ _scaled_b(linear, dtype) for d_TO, linear in zip(gradients, linears, strict=True) if linear.b_OR is not None]
    low_TR = torch.cat(parts, dim=1) if parts else gradients[0].new_empty(count, 0)
    if not needed:
        return None, low_TR
    a_RI = _stacked_a(linears, dtype)
    x_TI = None if a_RI is None else low_TR @ a_RI
    for d_TO, linear in zip(gradients, linears, strict=True):
        x_TI = d_TO @ linear.weight_OI if x_TI is None else x_TI.addmm_(d_TO, linear.weight_OI)
    return x_TI, low_TR


def _adapter_gradients(
    x_TI: Tensor, low_TR: Tensor, gradients: Sequence[Tensor], low_gradient_TR: Tensor, linears: Sequence[Linear]
) -> list[Tensor | None]:
    """The fp32 gradients of A and B of each layer in turn; None, None for one without."""
    ranks = _ranks(linears)
    a_gradients = product(low_gradient_TR.t(), x_TI).split(ranks) if sum(ranks) else [None] * len(ranks)
    result: list[Tensor | None] = []
    for linear, a, low, d_TO in zip(linears, a_gradients, low_TR.split(ranks, dim=1), gradients, strict=True):
        result += [None, None] if linear.a_RI is None else [a, product(d_TO.t(), low).mul_(linear.scale)]
    return result


class _Project(Function):
    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, linears: tuple[Linear, ...], *adapters: Tensor | None) -> Any:
        outputs, low_TR = _project(x_TI, linears)
        ctx.save_for_backward(x_TI, low_TR)
        ctx.linears = linears
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x_TI, low_TR = ctx.saved_tensors
        x_gradient, low_gradient = _inputs_gradient(gradients, ctx.linears, ctx.needs_input_grad[0])
        return x_gradient, None, *_adapter_gradients(x_TI, low_TR, gradients, low_gradient, ctx.linears)


class _FeedForward(Function):
    """down(silu(gate(x)) * up(x)) as one step, so that the product of gate and up need not be kept for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x_TI: Tensor, linears: tuple[Linear, Linear, Linear], *adapters: Tensor | None) -> Any:
        (gate_TO, up_TO), low_TR = _project(x_TI, linears[:2])
        (y_TI,), down_TR = _project(gate(gate_TO, up_TO), linears[2:])
        ctx.save_for_backward(x_TI, gate_TO, up_TO, low_TR, down_TR)
        ctx.linears = linears
        return y_TI

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        x_TI, gate_TO, up_TO, low_TR, down_TR = ctx.saved_tensors
        first, down = ctx.linears[:2], ctx.linears[2:]
        inner, low_gradient = _inputs_gradient(gradients, down, True)
        assert inner is not None
        inner_TO, *both = gate_backward(gate_TO, up_TO, inner)
        down_gradients = _adapter_gradients(inner_TO, down_TR, gradients, low_gradient, down)
        del inner_TO, inner
        x_gradient, low_gradient = _inputs_gradient(both, first, ctx.needs_input_grad[0])
        return x_gradient, None, *_adapter_gradients(x_TI, low_TR, both, low_gradient, first), *down_gradients


def _leaves(linears: Sequence[Linear]) -> list[Tensor | None]:
    return [leaf for linear in linears for leaf in (linear.a_RI, linear.b_OR)]


def project(x_TI: Tensor, *linears: Linear) -> tuple[Tensor, ...]:
    """The outputs (T, O) of layers that read the same x (T, I), one each."""
    return _Project.apply(x_TI, linears, *_leaves(linears))  # pyright: ignore[reportReturnType]


def feed_forward(x_TI: Tensor, gate: Linear, up: Linear, down: Linear) -> Tensor:
    """down(silu(gate(x)) * up(x)) (T, I)."""
    linears = (gate, up, down)
    return _FeedForward.apply(x_TI, linears, *_leaves(linears))  # pyright: ignore[reportReturnType]
