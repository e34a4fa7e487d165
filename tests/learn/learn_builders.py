"""Tiny models and rows for the tests of the learner. Nothing is downloaded, and all values come from numpy streams."""

from types import SimpleNamespace

import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from coterie.config import LoraConfig, LossConfig, OptimizerConfig, TrainConfig
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner
from coterie.seeding import stream
from coterie.types import Row

VOCABULARY = 37
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.bfloat16 if DEVICE == "cuda" else torch.float16  # which Triton's interpreter, on numpy, has
_KINDS = {
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "llama": (LlamaConfig, LlamaForCausalLM),
}


def fill(model: nn.Module, scale: float = 0.3) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.from_numpy(stream(0, "weights", name).normal(0, scale, tuple(parameter.shape))))


def tiny(kind: str = "qwen2", *, dtype: torch.dtype = torch.float32, tied: bool = False, **more) -> nn.Module:
    """A causal model of about 6 000 weights whose logits spread over several nats."""
    config_class, model_class = _KINDS[kind]
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=4,
        max_position_embeddings=128,
        tie_word_embeddings=tied,
        **more,
    )
    model = model_class(config)
    fill(model)
    return model.to(dtype).eval()


class _Lookup(nn.Module):
    def __init__(self, vocabulary: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.table_VV = nn.Parameter(torch.from_numpy(stream(0, "table").normal(size=(vocabulary, vocabulary))).to(dtype))

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(last_hidden_state=self.table_VV[input_ids])


class TableModel(nn.Module):
    """A bigram model: the logits after a token are the token's row of a table, so a gradient shows which positions were read."""

    base_model_prefix = "model"

    def __init__(self, vocabulary: int = 12, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.model = _Lookup(vocabulary, dtype)
        self.lm_head = nn.Linear(vocabulary, vocabulary, bias=False, dtype=dtype)
        with torch.no_grad():
            self.lm_head.weight.copy_(torch.eye(vocabulary))
        self.lm_head.requires_grad_(False)
        self.config = SimpleNamespace()

    @property
    def table_VV(self):
        return self.model.table_VV

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, input_ids, use_cache=False):
        return SimpleNamespace(logits=self.lm_head(self.model(input_ids).last_hidden_state))


def row(prompt, completion, advantage=1.0, logprobs=None, temperature=1.0, episode=0) -> Row:
    logprobs = tuple(logprobs) if logprobs is not None else (-2.0,) * len(completion)
    return Row(tuple(prompt), tuple(completion), logprobs, advantage, temperature, 0, "t", episode, "A", 0)


def ragged_rows(
    count: int = 8, seed: int = 0, vocabulary: int = VOCABULARY, temperature: float = 1.0, zeros: bool = True
) -> list[Row]:
    """Rows of lengths 3 to 20 whose sampler log-probs are arbitrary; every fourth has a zero advantage."""
    rng = stream(seed, "rows")
    rows = []
    for i in range(count):
        prompt = rng.integers(0, vocabulary, rng.integers(1, 9)).tolist()
        completion = rng.integers(0, vocabulary, rng.integers(2, 12)).tolist()
        advantage = 0.0 if i % 4 == 3 else float(rng.normal())
        rows.append(row(prompt, completion, advantage, rng.normal(-3.5, 0.3, len(completion)).tolist(), temperature, episode=i))
    return rows


def full_logprobs(model, one: Row) -> torch.Tensor:
    """The plain way: the whole model on one unpadded row, log-softmax everywhere, then look up."""
    ids = torch.tensor([[*one.prompt_ids, *one.completion_ids]])
    logits = model(input_ids=ids).logits[0].float() / one.temperature
    every = torch.log_softmax(logits, dim=-1)
    start = len(one.prompt_ids)
    return torch.stack([every[start - 1 + k, token] for k, token in enumerate(one.completion_ids)])


def train_config(
    *, tokens_per_micro_batch: int = 10_000, loss: LossConfig | None = None, steps: int = 6, **optimizer
) -> TrainConfig:
    optimizer = {"lr": 1e-2, "schedule": "constant"} | optimizer
    return TrainConfig(
        steps=6,
        tokens_per_micro_batch=tokens_per_micro_batch,
        loss=loss or LossConfig(),
        optimizer=OptimizerConfig(**optimizer),
    )


def lora_learner(
    config: TrainConfig | None = None, *, dtype: torch.dtype = torch.float32, dropout: float = 0.0, seed: int = 0
) -> Learner:
    model = attach_adapter(tiny(dtype=dtype), LoraConfig(rank=4, alpha=8, dropout=dropout), seed)
    return Learner(model, config or train_config(), seed=seed)


def weights_of(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in learner.trainable.items()}


def draw(*shape: int, grad: bool = True, dtype: torch.dtype = HALF) -> torch.Tensor:
    return torch.randn(*shape).to(DEVICE, dtype).requires_grad_(grad)


def assert_near(pairs, relative: float = 4e-3) -> None:
    """Each pair's norm of the difference is small against the second's norm."""
    for ours, theirs in pairs:
        assert torch.isfinite(ours).all()
        assert (ours.double() - theirs.double()).norm() <= relative * theirs.double().norm()
