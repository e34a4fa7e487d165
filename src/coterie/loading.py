"""Loads the base model and its tokenizer, from the package, a folder or a hub id, with errors that say what is missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coterie.config import ModelConfig
from coterie.config.learn import BUILT_IN
from coterie.pocket import MODELS
from coterie.tokens import ChatTokenizer, load_tokenizer
from coterie.types import CoterieError


def be_quiet() -> None:
    """Keep the progress bars and notices of transformers off the screen and out of logs."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()


def source_of(path: str) -> str:
    """Where a model's files are: the built-in ones lie in the package."""
    return str(MODELS[path]) if path in BUILT_IN else path


def device_of(config: ModelConfig) -> torch.device:
    if config.device == "cuda" and not torch.cuda.is_available():
        raise CoterieError("model.device: cuda was asked for but no CUDA device is visible; use model.device=cpu")
    if config.device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(config.device)


def dtype_of(config: ModelConfig) -> torch.dtype:
    if config.dtype == "auto":
        return torch.float32 if device_of(config).type == "cpu" else torch.bfloat16
    return getattr(torch, config.dtype)


@dataclass(frozen=True, slots=True)
class Reader:
    """What is known of a model without its weights: how it reads and writes text, and how much of it."""

    tokenizer: ChatTokenizer
    context_length: int


def load_reader(config: ModelConfig) -> Reader:
    """The tokenizer and context length of a model; reads no weights, so a run can be checked before it starts."""
    from transformers import AutoConfig, GenerationConfig

    source = source_of(config.path)
    _check_folder(config.path, source)
    try:
        about = AutoConfig.from_pretrained(source)
    except Exception as error:  # transformers raises many kinds for a folder that is no model
        raise CoterieError(f"model.path: {config.path} could not be loaded ({_first_line(error)})") from error
    try:
        eos = GenerationConfig.from_pretrained(source).eos_token_id
    except OSError:
        eos = about.eos_token_id
    # Models may end a message with more than one token; their generation config lists them.
    stop_ids = () if eos is None else tuple(eos) if isinstance(eos, list | tuple) else (eos,)
    tokenizer = load_tokenizer(source, config.chat_template, stop_ids, about.model_type)
    if max(tokenizer.control_ids, default=0) >= about.vocab_size:
        raise CoterieError(
            f"model.path: {config.path} has {about.vocab_size} embeddings but its tokenizer has larger ids; "
            "the two do not belong together"
        )
    return Reader(tokenizer, int(about.max_position_embeddings))


def load_model(config: ModelConfig) -> Any:
    """The base model with its weights, in evaluation mode on its device."""
    from transformers import AutoModelForCausalLM

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(source_of(config.path), dtype=dtype_of(config))
    except Exception as error:
        raise CoterieError(f"model.path: {config.path} could not be loaded ({_first_line(error)})") from error
    return model.eval().to(device_of(config))


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _check_folder(path: str, source: str) -> None:
    folder = Path(source)
    looks_local = path.startswith((".", "/", "~")) or folder.exists() or path.count("/") > 1
    if not looks_local:
        return
    if not folder.is_dir():
        raise CoterieError(f'model.path: there is no folder {path}; give a folder in Hugging Face format, a hub id, or "pocket"')
    if not (folder / "config.json").is_file():
        raise CoterieError(f"model.path: {path} holds no config.json; save the model there with save_pretrained")
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise CoterieError(
            f"model.path: {path} holds no tokenizer (tokenizer.json); save it there with AutoTokenizer.save_pretrained"
        )
