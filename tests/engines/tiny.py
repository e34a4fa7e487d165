"""Tiny random models of each architecture that the local engine covers."""

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from coterie.engines.base import Request

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": 1,
}

CONFIGS: dict[str, PretrainedConfig] = {
    "llama": LlamaConfig(**SIZES, tie_word_embeddings=False),
    "llama-scaled-rope": LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "llama-biases": LlamaConfig(**SIZES, attention_bias=True),
    "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
    "qwen3": Qwen3Config(**SIZES, head_dim=16),
    "mistral": MistralConfig(**SIZES, sliding_window=None),
}


def tiny_model(name: str, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(CONFIGS[name], dtype=torch.float32)
    with torch.no_grad():
        for key, parameter in model.named_parameters():  # away from the small initial weights, so that outputs are peaked
            parameter.mul_(4.0 if parameter.dim() > 1 else 1.0).add_(
                0.05 * torch.randn_like(parameter) if "bias" in key or "norm" in key else 0
            )
    return model.eval()


def run(engine, asked: list[Request]) -> list:
    """Submit all requests at once; their completions in the same order."""
    tickets = [engine.submit(request) for request in asked]
    done = {}
    while len(done) < len(tickets):
        done.update(engine.step())
    return [done[ticket] for ticket in tickets]
