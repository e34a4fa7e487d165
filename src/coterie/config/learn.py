"""The model, the engine that samples from it, and how it learns."""

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from coterie.config.base import Config, Count, Decay, Fraction, NonNegative, Positive


class LoraConfig(Config):
    """A low-rank adapter on every linear projection, in fp32 whatever the base's precision."""

    kind: Literal["lora"] = "lora"
    rank: Count = 32
    alpha: Positive = 64.0
    dropout: Fraction = 0.0
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class FullWeightsConfig(Config):
    """No adapter: every weight is trained (a frozen copy of the base is kept for untrained partners)."""

    kind: Literal["full"]


AdapterConfig = Annotated[LoraConfig | FullWeightsConfig, Field(discriminator="kind")]


BUILT_IN = ("pocket", "pocket-small")
"""Models that ship with coterie, by the name that stands for their folder. All know one form of prompt only."""


class ModelConfig(Config):
    path: str = "pocket"
    """"pocket" or "pocket-small" (built in), a folder in Hugging Face format, or a hub id."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the base weights; "auto" is float32 on a CPU and bfloat16 on a GPU. Adapters are always float32."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    chat_template: str | None = None
    """A file with a chat template, for a tokenizer that has none."""
    adapter: AdapterConfig = LoraConfig()


class EngineConfig(Config):
    kind: Literal["local", "hf", "vllm"] = "local"
    """"local": coterie's own decode loop. "hf": transformers' forward pass, the slow reference. "vllm": vLLM (extra `vllm`), which
    keeps a second copy of the weights and samples other messages than these two from the same noise; LoRA only."""
    slots: Count = 256
    """How many messages are decoded at once at most."""
    gpu_memory_utilization: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    """vllm only: the share of a GPU's memory that vLLM may fill, its copy of the weights included; 0.4 when absent. The learner
    needs the rest."""
    tensor_parallel: Count | None = None
    """vllm only: over how many GPUs its copy of the weights is spread; 1 when absent."""

    @model_validator(mode="after")
    def _options_belong_to_vllm(self) -> "EngineConfig":
        for key in ("gpu_memory_utilization", "tensor_parallel"):
            if self.kind != "vllm" and getattr(self, key) is not None:
                raise ValueError(f'{key} belongs to kind = "vllm"; remove it')
        return self


_TRUNCATING = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}


class SamplingConfig(Config):
    """How training messages are sampled. Only the temperature may be set: a truncated or penalised distribution is not the one
    whose log-probabilities the learner differentiates (TRL issue #6789 measures the bias), so those settings are refused."""

    temperature: Positive = 1.0

    @model_validator(mode="before")
    @classmethod
    def _refuse_truncation(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        for key, neutral in _TRUNCATING.items():
            if key in values and values[key] not in (neutral, None):
                raise ValueError(
                    f"{key} is refused in training because it biases the gradient; set evaluate.sampling.{key} or remove it"
                )
        return {key: value for key, value in values.items() if key not in _TRUNCATING}


class EvaluationSamplingConfig(Config):
    temperature: NonNegative = 1.0
    """0 is greedy."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    top_k: Annotated[int, Field(ge=0)] = 0
    """0 keeps every token."""


class OptimizerConfig(Config):
    """AdamW with gradient clipping."""

    lr: Positive = 1e-4
    betas: tuple[Decay, Decay] = (0.9, 0.999)
    eps: Positive = 1e-8
    weight_decay: NonNegative = 0.0
    max_grad_norm: Positive = 1.0
    schedule: Literal["linear", "constant"] = "linear"
    """"linear" decays towards lr * final_fraction, which it would reach one step after the last (as in transformers); both
    schedules follow the warm-up."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    final_fraction: Fraction = 0.0


class LossConfig(Config):
    """The clipped policy-gradient surrogate, with no KL term."""

    normaliser: Literal["tokens", "live_tokens", "sequences", "constant"] = "tokens"
    """What the summed loss is divided by: all of the step's policy tokens; those of rows with an advantage other than zero;
    "sequences": each message's own length, then the number of messages; "constant": rows times `constant_length` (Dr. GRPO)."""
    constant_length: Count | None = None
    clip_low: NonNegative = 0.2
    clip_high: NonNegative = 0.28

    @model_validator(mode="after")
    def _constant_has_a_length(self) -> "LossConfig":
        if (self.normaliser == "constant") != (self.constant_length is not None):
            raise ValueError('constant_length belongs to normaliser = "constant", and is needed there')
        return self


class TrainConfig(Config):
    steps: Annotated[int, Field(ge=0)] = 80
    tasks_per_step: Count = 8
    tokens_per_micro_batch: Count = 16384
    """Most padded tokens (prompt and completion) in one forward pass of the learner. The result does not depend on it."""
    checkpoint_every: Count = 10
    """Steps between checkpoints; the last step always has one."""
    keep_checkpoints: Count = 2
    sample_episodes: Annotated[int, Field(ge=0)] = 2
    """How many episodes of each step are written to episodes.jsonl."""
    optimizer: OptimizerConfig = OptimizerConfig()
    loss: LossConfig = LossConfig()
    gradient_checkpointing: bool = False
