"""Checkpoints that are whole or absent.

A checkpoint is a folder `step-000012` with `state.safetensors` (what is trained, and Adam's moments), `state.json` (counters, and
what the caller adds) and, for a LoRA, `adapter/` as PEFT writes it, for use elsewhere with `PeftModel.from_pretrained`. Frozen
copies of the policy that the run plays with are in `players.safetensors`, in every checkpoint anew: a checkpoint needs no other. It
is written under a temporary name, flushed to the disk and then renamed: without the temporary prefix, it is complete.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from coterie.learn.learner import Learner
from coterie.types import CoterieError

FORMAT = 1
TEMPORARY = ".tmp-"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def save(
    folder: Path,
    step: int,
    learner: Learner,
    extra: dict[str, Any],
    keep: int,
    frozen: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> Path:
    """Write `folder/step-<step>` and then remove all but the `keep` newest; return its path. `extra` is JSON; `frozen` has the
    tensors of frozen copies of the policy by player.

    With several processes, one of them saves. What killed writes left behind is removed first.

    Raises CoterieError when the disk is full; earlier checkpoints are then untouched.
    """
    state = {"format": FORMAT, "step": learner.step_index, "updates": learner.updates, "extra": extra}
    text = json.dumps(state, indent=1, allow_nan=False)
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob(TEMPORARY + "*"):
        shutil.rmtree(leftover)
    final = folder / f"step-{step:06d}"
    temporary = folder / f"{TEMPORARY}{final.name}"
    try:
        _write(temporary, learner, text, frozen or {})
        if final.exists():  # written again after resuming from an earlier one; a folder cannot be renamed over a full one
            os.rename(final, folder / f"{TEMPORARY}old-{final.name}")
        os.rename(temporary, final)
        _flush(folder)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if _disk_is_full(error):
            raise CoterieError(
                f"{folder}: no room on the disk for a checkpoint; free some space or lower train.keep_checkpoints, then resume"
            ) from error
        raise
    shutil.rmtree(folder / f"{TEMPORARY}old-{final.name}", ignore_errors=True)
    others = [path for path in _complete(folder) if path != final]
    for path in others[: max(0, len(others) - (keep - 1))]:
        # a removal cut short must not leave half a folder under a valid name
        doomed = folder / f"{TEMPORARY}{path.name}"
        os.rename(path, doomed)
        shutil.rmtree(doomed)
    return final


def latest(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step, or None."""
    found = _complete(folder)
    return found[-1] if found else None


def load(path: Path, learner: Learner) -> dict[str, Any]:
    """Put `learner` into the state that was saved, bit for bit, and return `extra`.

    Raises CoterieError, before anything changes, when the checkpoint cannot be read or belongs to another model or adapter.
    """
    try:
        state = json.loads((path / "state.json").read_text())
        tensors = load_file(path / "state.safetensors")
    except (OSError, ValueError, SafetensorError) as error:
        raise CoterieError(f"{path}: not a readable checkpoint ({error}); remove it and resume from an earlier one") from error
    if state.get("format") != FORMAT:
        raise CoterieError(f"{path}: checkpoint format {state.get('format')}, this version reads {FORMAT}; start a new run")
    expected = {f"param.{name}": p for name, p in learner.trainable.items()}
    if state["updates"]:
        expected |= {f"{moment}.{name}": p for moment in _MOMENTS for name, p in learner.trainable.items()}
    for name in sorted(expected.keys() | tensors.keys()):
        want, got = expected.get(name), tensors.get(name)
        if want is None or got is None or want.shape != got.shape or want.dtype != got.dtype:
            raise CoterieError(
                f"{path}: {name} is {_describe(got)} in the checkpoint and {_describe(want)} in the model; "
                "resume with the model.path and model.adapter that the run began with"
            )
    learner.optimizer.state.clear()
    with torch.no_grad():
        for name, parameter in learner.trainable.items():
            parameter.copy_(tensors[f"param.{name}"])
            if state["updates"]:
                moments = {moment: tensors[f"{moment}.{name}"].to(parameter.device) for moment in _MOMENTS}
                # torch's fused AdamW, which the learner takes on CUDA, counts its steps there
                count = torch.tensor(float(state["updates"]), device=parameter.device if parameter.is_cuda else "cpu")
                learner.optimizer.state[parameter] = {"step": count, **moments}
    learner.step_index, learner.updates = state["step"], state["updates"]
    return state["extra"]


def load_frozen(path: Path) -> dict[str, dict[str, Tensor]]:
    """The frozen copies of the policy that were saved, by player."""
    file = path / "players.safetensors"
    frozen: dict[str, dict[str, Tensor]] = {}
    try:
        tensors = load_file(file) if file.exists() else {}
    except (OSError, SafetensorError) as error:
        raise CoterieError(f"{file}: cannot be read ({error}); remove {path} and resume from an earlier checkpoint") from error
    for key, tensor in tensors.items():
        player, _, name = key.partition(":")
        frozen.setdefault(player, {})[name] = tensor
    return frozen


def _write(folder: Path, learner: Learner, text: str, frozen: Mapping[str, Mapping[str, Tensor]]) -> None:
    folder.mkdir()
    save_file(_tensors(learner), folder / "state.safetensors")
    if frozen:
        named = {f"{player}:{name}": tensor for player, tensors in frozen.items() for name, tensor in tensors.items()}
        save_file(named, folder / "players.safetensors")
    if hasattr(learner.model, "peft_config"):
        # the embeddings are not trained, and asking whether they were would ask the hub
        learner.model.save_pretrained(folder / "adapter", selected_adapters=["default"], save_embedding_layers=False)
        _tidy(folder / "adapter")
    (folder / "state.json").write_text(text)
    for parent, _, files in os.walk(folder):
        for file in files:
            _flush(Path(parent, file))
        _flush(Path(parent))


def _tidy(adapter: Path) -> None:
    """Make PEFT's folder a function of the run: its target modules are a set, in another order every time, and its model card is an
    empty form that names a path of this machine."""
    file = adapter / "adapter_config.json"
    config = json.loads(file.read_text())
    if isinstance(config.get("target_modules"), list):
        config["target_modules"].sort()
    file.write_text(json.dumps(config, indent=2, sort_keys=True))
    (adapter / "README.md").unlink(missing_ok=True)


def _tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {}
    for name, parameter in learner.trainable.items():
        tensors[f"param.{name}"] = parameter.detach().contiguous()
        for moment in _MOMENTS if learner.updates else ():
            tensors[f"{moment}.{name}"] = learner.optimizer.state[parameter][moment].contiguous()
    return tensors


def _complete(folder: Path) -> list[Path]:
    paths = [path for path in folder.glob("step-*") if re.fullmatch(r"step-\d+", path.name) and (path / "state.json").is_file()]
    return sorted(paths, key=lambda path: int(path.name[5:]))


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _disk_is_full(error: Exception) -> bool:
    # safetensors writes in Rust and reports the system's error as text: "I/O error: ... (os error 28)"
    full = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in full or any(f"(os error {code})" in str(error) for code in full)


def _describe(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
