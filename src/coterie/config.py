"""What a run is configured by: pydantic models, discriminated on `kind` where there is a choice.

A recipe file, a profile, an arm and the command line are merged (`recipe.py`) into one dict that is parsed here into a frozen
`RunConfig`. Unknown keys are refused, never ignored, and combinations that would train on biased data do not parse. Every field
carries its meaning and unit as a docstring under it. The resolved config is written into each run folder.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Count = Annotated[int, Field(ge=1)]
NonNegative = Annotated[float, Field(ge=0.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Decay = Annotated[float, Field(ge=0.0, lt=1.0)]


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, validate_default=True)


# tasks


class PocketTasksConfig(Config):
    """Procedural word problems that come with the package; nothing is downloaded."""

    kind: Literal["pocket"] = "pocket"
    train: Count = 4096
    """How many training tasks to draw from."""
    held_out: Count = 400
    """How many held-out tasks to score on. Their number combinations never occur in training."""
    seed: int = 0
    """The data seed, independent of the training seed: all arms and seeds see the same two sets."""
    families: tuple[str, ...] | None = None
    """Only these families of problems; all when absent."""


class GSM8KTasksConfig(Config):
    """GSM8K with its facts split between the seats by the published rule."""

    kind: Literal["gsm8k"]
    path: str | None = None
    """Folder with train.jsonl and test.jsonl; when absent, openai/gsm8k through the `datasets` extra."""
    train: Count = 1024
    held_out: Count = 300
    seed: int = 0


class JsonlTasksConfig(Config):
    """The user's own tasks, one JSON object a line."""

    kind: Literal["jsonl"]
    path: str
    """The training file, or the only file."""
    held_out_path: str | None = None
    """A file of held-out tasks; when absent they are set aside from `path` by a hash of the question."""
    train: Count | None = None
    """How many training tasks to use; all when absent."""
    held_out: Count | None = None
    """How many held-out tasks; when absent, all of `held_out_path`, or a tenth of `path`."""
    seed: int = 0
    on_reject: Literal["error", "skip"] = "error"
    """What to do with a line whose question cannot be split into facts."""


TasksConfig = Annotated[PocketTasksConfig | GSM8KTasksConfig | JsonlTasksConfig, Field(discriminator="kind")]


# grading


class NumericGraderConfig(Config):
    """The boxed number, or else the last number of the text, compared exactly."""

    kind: Literal["numeric"] = "numeric"
    boxed_only: bool = False
    """Count an answer outside \\boxed{} as wrong."""


class ExactGraderConfig(Config):
    """The boxed text, or else the last line, compared as a string."""

    kind: Literal["exact"]
    boxed_only: bool = False


class MathVerifyGraderConfig(Config):
    """Math-Verify's symbolic comparison, in worker processes (extra `math`)."""

    kind: Literal["math_verify"]
    timeout: Positive = 5.0
    """Seconds for one answer; a time-out is a counted error, not a wrong answer."""
    boxed_only: bool = False
    workers: Count = 1


GradingConfig = Annotated[NumericGraderConfig | ExactGraderConfig | MathVerifyGraderConfig, Field(discriminator="kind")]


# protocol, credit, draw, cast


class ChatConfig(Config):
    """Seats that hold different facts take turns to write one message."""

    kind: Literal["chat"] = "chat"
    order: tuple[str, ...] = ("A", "B", "A", "B")
    """Who speaks at each turn. A seat's last turn is its final message."""
    message_tokens: Count = 160
    """Cap of a message that is not final, in tokens."""
    final_tokens: Count = 384
    """Cap of a final message, in tokens."""
    deliver: bool = True
    """False cuts the channel: each partner line is replaced by a placeholder."""
    wording: Literal["auto", "plain", "pocket"] = "auto"
    """The words of the prompt. "auto" takes "pocket" for the built-in model and "plain" for every other."""

    @field_validator("order")
    @classmethod
    def _two_seats(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) < 2:
            raise ValueError("needs at least two different seats, for example ['A', 'B', 'A', 'B']")
        return order


ProtocolConfig = Annotated[ChatConfig, Field()]


class TeamMeanConfig(Config):
    """Every message is credited with the team reward minus the mean over its group."""

    kind: Literal["team_mean"] = "team_mean"


class FixedDrawConfig(Config):
    """The same number of episodes for every task."""

    kind: Literal["fixed"] = "fixed"
    episodes: Annotated[int, Field(ge=2)] = 4


class SelfPlayConfig(Config):
    """The policy in training sits in every seat."""

    kind: Literal["self_play"] = "self_play"


# model, sampling, learning


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


class ModelConfig(Config):
    path: str = "pocket"
    """"pocket" (the built-in model), a folder in Hugging Face format, or a hub id."""
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


class EvaluateConfig(Config):
    episodes: Count = 2
    """Episodes per held-out task."""
    before: bool = True
    """Also score the untrained model (once per arm, shared by its seeds)."""
    cross_play: bool = True
    """Also score the trained copy with the untrained base as its partner, in every seat."""
    sampling: EvaluationSamplingConfig | None = None
    """When absent, the training sampler."""
    sample_episodes: Annotated[int, Field(ge=0)] = 40
    """How many held-out conversations are kept, before and after training."""


class RunConfig(Config):
    """One arm with one seed, fully resolved."""

    recipe: str
    profile: str
    arm: str
    seed: Annotated[int, Field(ge=0)]
    tasks: TasksConfig = PocketTasksConfig()
    grading: GradingConfig = NumericGraderConfig()
    protocol: ProtocolConfig = ChatConfig()
    credit: TeamMeanConfig = TeamMeanConfig()
    draw: FixedDrawConfig = FixedDrawConfig()
    cast: SelfPlayConfig = SelfPlayConfig()
    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()

    def conditions(self) -> dict[str, Any]:
        """What two runs must have in common to be compared: everything but who they are, what only affects speed or the disk, and
        where files lie on this machine."""
        settings = self.model_dump(mode="json", exclude={"recipe", "profile", "arm", "seed", "engine"})
        for key in ("checkpoint_every", "keep_checkpoints", "sample_episodes", "tokens_per_micro_batch", "gradient_checkpointing"):
            settings["train"].pop(key)
        settings["evaluate"].pop("sample_episodes")
        settings["evaluate"].pop("before")
        # vLLM cannot take our sampling noise, so its messages are not those of the other engines
        settings["noise"] = "vllm" if self.engine.kind == "vllm" else "shared"
        settings["model"].pop("device")
        for table, key in (("model", "path"), ("model", "chat_template"), ("tasks", "path"), ("tasks", "held_out_path")):
            if settings[table].get(key):
                settings[table][key] = Path(settings[table][key]).name
        return settings

    @property
    def evaluation_sampling(self) -> EvaluationSamplingConfig:
        return self.evaluate.sampling or EvaluationSamplingConfig(temperature=self.sampling.temperature)
