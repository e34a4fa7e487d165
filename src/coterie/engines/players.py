"""The models behind the players: one copy of the weights, seen with the policy's adapter, with another, or with none (base)."""

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
        elif self._adapted and player in self.model.peft_config:
            with self._adapter(player):
                yield self.model.get_base_model()
        else:
            raise self.unknown(player)

    def unknown(self, player: Player) -> CoterieError:
        further = [name for name in self.adapters if name not in self._policy_adapters()]
        return CoterieError(f"no player is named {player}; this engine plays {', '.join([POLICY, BASE, *further])}")

    @property
    def adapters(self) -> list[str]:
        """Names of the adapters that are loaded on the model."""
        return list(self.model.peft_config) if self._adapted else []

    def adapter(self, player: Player) -> str | None:
        """The adapter that `player` plays with, None for the base."""
        if player == BASE or not self._adapted:
            return None
        return self._policy_adapters()[0] if player == POLICY else player

    def unsupported(self) -> str | None:
        """Why `weight` cannot compute what an adapter of the model computes, or None. Plain LoRA on linear layers only."""
        for name, config in (self.model.peft_config if self._adapted else {}).items():
            if config.peft_type != "LORA":
                return f"adapter {name} is of type {config.peft_type}"
            for option in ("use_dora", "lora_bias", "modules_to_save", "trainable_token_indices"):
                if getattr(config, option, None):
                    return f"adapter {name} uses {option}"
        return None

    def _policy_adapters(self) -> list[str]:
        return list(self.model.active_adapters) if self._adapted else []

    @contextmanager
    def _adapter(self, name: str) -> Iterator[None]:
        """Play with another adapter for a moment. Switching touches which parameters are trained; that is put back too."""
        before = self._policy_adapters()
        trained = {parameter: parameter.requires_grad for parameter in self.model.parameters()}
        self.model.base_model.set_adapter(name)
        try:
            yield
        finally:
            self.model.base_model.set_adapter(before)
            for parameter, flag in trained.items():
                parameter.requires_grad_(flag)

    @torch.no_grad()
    def weight(self, linear: Any, player: Player) -> torch.Tensor:
        """The effective weight of a (possibly adapted) linear layer for `player`, summed in fp32 and rounded once; base layers are
        returned without a copy. To be called within `as_module(player)`."""
        if not hasattr(linear, "base_layer"):
            return linear.weight.detach()
        weight = linear.base_layer.weight.detach()
        if player == BASE:
            return weight
        for name in linear.active_adapters:  # as_module has made `player`'s own adapter the active one
            if name in linear.lora_A:
                weight = weight.float() + linear.get_delta_weight(name).float()
        return weight.to(linear.base_layer.weight.dtype)
