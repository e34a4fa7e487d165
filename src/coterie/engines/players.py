"""The models behind the players: one copy of the weights, seen with the adapter on (policy) or off (base)."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from coterie.types import BASE, POLICY, CoterieError, Player


class Players:
    """`model` is the trainable model: a PEFT model, or a plain one when every weight is trained, in which case a frozen copy
    is taken now to play the untrained base."""

    def __init__(self, model: Any):
        self.model = model
        self._adapted = hasattr(model, "peft_config")
        self._frozen = None
        if not self._adapted:
            self._frozen = copy.deepcopy(model).eval().requires_grad_(False)

    @contextmanager
    def as_module(self, player: Player) -> Iterator[Any]:
        """A transformers causal LM (unwrapped) that computes what `player` computes."""
        if player == POLICY:
            yield self.model.get_base_model() if self._adapted else self.model
        elif player == BASE and self._frozen is not None:
            yield self._frozen
        elif player == BASE:
            with self.model.disable_adapter():
                yield self.model.get_base_model()
        else:
            raise CoterieError(f"no player is named {player}; this engine plays {POLICY} and {BASE}")

    @torch.no_grad()
    def weight(self, linear: Any, player: Player) -> torch.Tensor:
        """The effective weight of a (possibly adapted) linear layer for `player`; base layers are returned without a copy."""
        if not hasattr(linear, "base_layer"):
            return linear.weight.detach()
        weight = linear.base_layer.weight.detach()
        if player == BASE:
            return weight
        for name in linear.active_adapters:
            if name in linear.lora_A:
                weight = weight + linear.get_delta_weight(name).to(weight.dtype)
        return weight
