"""From a partner as it is written in a configuration to a player that the engine can play.

A frozen player is a further LoRA adapter on the model, beside the policy's. It takes no part in learning: it has no gradient, is
not in the optimiser, and the policy's adapter stays the active one. On the model it costs no more than the adapter; the local
engine merges weights of their own for every player that it is asked for, and lets go of those of a snapshot that has left.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coterie.casts.base import is_address, player_name
from coterie.config import FullWeightsConfig, RunConfig
from coterie.learn import checkpoint
from coterie.records import read_json
from coterie.runs import RunFolder
from coterie.types import BASE, CoterieError, Player

ADAPTER = "default"
"""PEFT's name of the policy's adapter."""


@dataclass(frozen=True, slots=True)
class Partners:
    """The players beside the policy and the base: folders of adapters, and addresses of servers, by player."""

    adapters: Mapping[Player, Path]
    addresses: Mapping[Player, str]


def find_partners(config: RunConfig, wanted: Iterable[str]) -> Partners:
    """Find what each partner stands for, and refuse all that can be refused before any weights are read.

    Raises CoterieError for a folder that holds no adapter, a run of another model, two partners of one name, and adapters beside
    full weights.
    """
    adapters: dict[Player, Path] = {}
    addresses: dict[Player, str] = {}
    named: dict[Player, str] = {}
    for partner in dict.fromkeys(wanted):
        player = player_name(partner)
        if named.setdefault(player, partner) != partner:
            raise CoterieError(f"partners {named[player]} and {partner} would both be called {player}; rename one of the folders")
        if player == BASE:
            continue
        if is_address(partner):
            addresses[player] = partner
            continue
        if isinstance(config.model.adapter, FullWeightsConfig):
            raise CoterieError(
                f'partner {partner}: an adapter belongs to the untouched base, and model.adapter.kind = "full" changes all '
                "weights; train a LoRA, or serve the partner and give its address"
            )
        adapters[player] = find_adapter(Path(partner).expanduser(), config)
    if addresses and config.evaluation_sampling.top_k:
        raise CoterieError("evaluate.sampling.top_k: servers with an OpenAI-compatible API have no such setting; remove it")
    return Partners(adapters, addresses)


def find_adapter(folder: Path, config: RunConfig) -> Path:
    """The PEFT folder that `folder` is or, for a finished run, that its last checkpoint holds."""
    if (folder / "adapter_config.json").is_file():
        return folder
    run = RunFolder(folder)
    if not run.started:
        raise CoterieError(
            f"partner {folder}: neither a run folder (config.toml) nor a PEFT adapter (adapter_config.json); "
            'give one of these, "base", or http://host:port/v1#model'
        )
    theirs, ours = run.config().model, config.model
    if isinstance(theirs.adapter, FullWeightsConfig):
        raise CoterieError(f"partner {folder}: that run trained all weights and has no adapter; serve it and give its address")
    if Path(theirs.path).name != Path(ours.path).name:
        raise CoterieError(
            f"partner {folder}: that run is of model {theirs.path}, this one of {ours.path}; serve it and give its address"
        )
    run.refuse_swarm()
    found = checkpoint.latest(run.checkpoints)
    if found is None or not run.finished:  # its latest checkpoint would be another one when this run is gone on with
        raise CoterieError(
            f"partner {folder}: that run has not finished; go on with it first (coterie run … --resume), or give the adapter "
            "folder of one of its checkpoints"
        )
    return found / "adapter"


def load_partners(model: Any, adapters: Mapping[Player, Path]) -> None:
    """Add each adapter to `model`, a PEFT model, frozen.

    Raises CoterieError when an adapter does not fit the model.
    """
    for player, folder in adapters.items():
        kind = read_json(folder / "adapter_config.json").get("peft_type")
        if kind != "LORA":
            raise CoterieError(f"partner {folder}: an adapter of type {kind}; only LoRA adapters can play beside the policy")
        flags = _flags(model)
        try:
            with _same_random_state():  # PEFT draws weights first, which the file's then replace
                # an adapter that is read from a file would be put on the first GPU of the machine, wherever the model is
                found = model.load_adapter(str(folder), player, is_trainable=False, torch_device=str(model.device))
        except Exception as error:  # PEFT and safetensors raise many kinds
            raise CoterieError(f"partner {folder}: this adapter does not fit the model ({_first_line(error)})") from error
        if found.unexpected_keys or found.missing_keys:
            key = [*found.unexpected_keys, *found.missing_keys][0]
            raise CoterieError(f"partner {folder}: this adapter is of a model of another shape ({key} has no counterpart)")
        _restore(model, flags)


def keep_snapshots(model: Any, wanted: Sequence[Player], before: Sequence[Player]) -> None:
    """Make the frozen copies of the policy be those of `wanted`: copy it as it is now for each new name, and forget those of
    `before` that are gone."""
    for player in wanted:
        if player not in model.peft_config:
            with torch.no_grad():
                add_snapshot(model, player, {name: p.detach() for name, p in _adapter(model, ADAPTER).items()})
    for player in before:
        if player not in wanted:
            model.delete_adapter(player)


def add_snapshot(model: Any, player: Player, tensors: Mapping[str, torch.Tensor]) -> None:
    """Add a frozen adapter of the policy's shape. `tensors` are named as the policy's own."""
    flags = _flags(model)
    with _same_random_state():
        model.add_adapter(player, copy.deepcopy(model.peft_config[ADAPTER]))
    with torch.no_grad():
        for name, parameter in _adapter(model, player).items():
            parameter.copy_(tensors[name])
    _restore(model, flags)


def snapshot_tensors(model: Any, players: Sequence[Player]) -> dict[Player, dict[str, torch.Tensor]]:
    """The weights of frozen copies, for a checkpoint."""
    return {player: {name: p.detach().contiguous() for name, p in _adapter(model, player).items()} for player in players}


def refuse_snapshots(config: RunConfig) -> None:
    """Raises CoterieError where a cast takes snapshots of a policy that cannot be copied, or that the engine cannot take in."""
    if not getattr(config.cast, "snapshot_every", None):
        return
    if isinstance(config.model.adapter, FullWeightsConfig):
        raise CoterieError('cast.snapshot_every: model.adapter.kind = "full" has no adapter to be copied; train a LoRA')
    if config.engine.kind == "vllm":
        raise CoterieError("cast.snapshot_every: vLLM cannot take in players while it runs; set engine.kind=local")


def _adapter(model: Any, player: Player) -> dict[str, torch.nn.Parameter]:
    """The parameters of one adapter, by the names that the policy's would have."""
    mark = f".{player}."
    return {n.replace(mark, f".{ADAPTER}."): p for n, p in model.named_parameters() if ".lora_" in n and mark in n}


def _flags(model: Any) -> tuple[list[str], dict[str, bool]]:
    return list(model.active_adapters), {name: p.requires_grad for name, p in model.named_parameters()}


def _restore(model: Any, before: tuple[list[str], dict[str, bool]]) -> None:
    """Adding an adapter may switch to it and touch what is trained: put both back, and freeze what is new."""
    active, flags = before
    if list(model.active_adapters) != active:
        model.base_model.set_adapter(active)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(flags.get(name, False))
    model.eval()


def _same_random_state() -> Any:
    return torch.random.fork_rng(devices=range(torch.cuda.device_count()))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
