"""What of a model is trained: a LoRA adapter, or all of it."""

import math
from typing import Any

import peft
import torch

from coterie import seeding
from coterie.config import FullWeightsConfig, LoraConfig
from coterie.types import CoterieError


def attach_adapter(model: Any, config: LoraConfig | FullWeightsConfig, seed: int) -> Any:
    """Make `model` trainable as `config` says and return it in eval mode; it is changed in place.

    LoRA (2106.09685): the base is frozen in its own precision, the adapter is float32, B starts at 0 and A uniform in
    +-1/sqrt(fan in), as in PEFT, but drawn from a stream named by seed and parameter: the start depends on nothing else, and
    the global random state is left as it was. Updates of a policy gradient are far below bfloat16's spacing, which is why neither
    an adapter nor full weights are trained in it; "full" converts the model to float32.

    Raises CoterieError when a target names no linear layer of the model.
    """
    if isinstance(config, FullWeightsConfig):
        return model.float().requires_grad_(True).eval()
    modules = dict(model.named_modules())
    for target in config.targets:
        matches = [m for name, m in modules.items() if name == target or name.endswith("." + target)]
        if not matches or any(isinstance(m, torch.nn.Embedding) or not hasattr(m, "weight") for m in matches):
            linear = ", ".join(sorted({name.rpartition(".")[2] for name, m in modules.items() if isinstance(m, torch.nn.Linear)}))
            raise CoterieError(f"model.adapter.targets: {target!r} is no linear layer of this model; choose from {linear}")
    lora = peft.LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,  # pyright: ignore[reportArgumentType]
        lora_dropout=config.dropout,
        target_modules=list(config.targets),
        bias="none",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):  # PEFT draws its own A, which is then overwritten
        model = peft.get_peft_model(model, lora, autocast_adapter_dtype=True)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_A." in name:
                bound = 1.0 / math.sqrt(parameter.shape[1])
                values = seeding.stream(seed, "adapter", name).uniform(-bound, bound, size=tuple(parameter.shape))
                parameter.copy_(torch.from_numpy(values))
    return model.eval()
