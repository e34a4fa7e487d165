"""What the benchmarks share: the model's shape with random weights, an adapter, timing, and facts about the machine."""

import datetime
import importlib.metadata
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPES: dict[str, dict[str, Any]] = {
    "1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32768,
    },
    "pocket": {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 1024,
    },
}
"""Qwen2.5-1.5B's shape, and one small enough for a CPU."""


def make_model(size: str, device: str, adapters: tuple[str, ...] = ("default",), rank: int = 32) -> Any:
    """A Qwen2 with random weights and LoRA on all seven projections, both halves away from zero: bf16 on CUDA, else fp32."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(
        **SHAPES[size],
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        use_sliding_window=False,
    )
    torch.manual_seed(0)
    with torch.device(device):
        base = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
        lora = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=TARGETS)
        model = get_peft_model(base.eval(), lora, adapter_name=adapters[0])
        for name in adapters[1:]:
            model.add_adapter(name, lora)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.normal_(std=0.01)
    return model.eval()


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: str, repeats: int = 3) -> float:
    """The median time of `repeats` runs; warm up before."""
    times = []
    for _ in range(repeats):
        wait(device)
        start = time.perf_counter()
        work()
        wait(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def copy_bandwidth(device: str) -> float:
    """Bytes read and written a second by a large copy."""
    size = 2**32 if device == "cuda" else 2**28
    source = torch.ones(size, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * size / seconds(lambda: target.copy_(source), device, 5)


def facts(device: str) -> dict[str, Any]:
    versions = {}
    for name in ("torch", "triton", "transformers", "peft", "vllm"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    card = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"card": card, "versions": versions, "date": datetime.datetime.now(datetime.UTC).date().isoformat()}


def write(path: str, result: dict[str, Any]) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(result, indent=1) + "\n")
