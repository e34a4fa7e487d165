"""One run: evaluation, and everything together."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from coterie.casts.base import player_name
from coterie.config.base import Config, Count
from coterie.config.learn import EngineConfig, EvaluationSamplingConfig, ModelConfig, SamplingConfig, TrainConfig
from coterie.config.play import (
    CastConfig,
    ChatConfig,
    CreditRuleConfig,
    DrawConfig,
    FixedDrawConfig,
    ProtocolConfig,
    SelfPlayConfig,
    TeamMeanConfig,
)
from coterie.config.swarm import SwarmConfig
from coterie.config.tasks import GradingConfig, NumericGraderConfig, PocketTasksConfig, TasksConfig


class EvaluateConfig(Config):
    episodes: Count = 2
    """Episodes per held-out task."""
    before: bool = True
    """Also score the untrained model (once per arm, shared by its seeds)."""
    repeats: Count = 3
    """How often the untrained model is scored, each time under other noise: how far a score moves when nothing was learned."""
    cross_play: bool = True
    """Also score the trained copy in each seat with a partner in every other, where a protocol has several seats."""
    partners: tuple[str, ...] = ("base",)
    """The partners of cross-play, written as `cast.partner`."""
    also: dict[str, ProtocolConfig] = Field(default_factory=dict)
    """Further protocols to score the same model with, by a name of your own; for example `also.plain = { kind = "solo" }`."""
    sampling: EvaluationSamplingConfig | None = None
    """When absent, the training sampler."""
    sample_episodes: Annotated[int, Field(ge=0)] = 40
    """How many held-out conversations are kept, before and after training."""


class PluginConfig(Config):
    """A file that registers kinds of its own (`coterie.kinds`)."""

    path: str
    sha256: str
    """Of the file's bytes: a run is only gone on with by the code that it began with."""


class RunConfig(Config):
    """One arm with one seed, fully resolved."""

    recipe: str
    profile: str
    arm: str
    seed: Annotated[int, Field(ge=0)]
    tasks: TasksConfig = PocketTasksConfig()
    grading: GradingConfig = NumericGraderConfig()
    protocol: ProtocolConfig = ChatConfig()
    credit: CreditRuleConfig = TeamMeanConfig()
    draw: DrawConfig = FixedDrawConfig()
    cast: CastConfig = SelfPlayConfig()
    model: ModelConfig = ModelConfig()
    engine: EngineConfig = EngineConfig()
    sampling: SamplingConfig = SamplingConfig()
    train: TrainConfig = TrainConfig()
    evaluate: EvaluateConfig = EvaluateConfig()
    swarm: SwarmConfig | None = None
    """With it, a run is a swarm: several copies, each trained by itself, that learn from each other's rollouts."""
    plugins: tuple[PluginConfig, ...] = ()

    @model_validator(mode="after")
    def _a_baseline_needs_episodes(self) -> "RunConfig":
        alone = self.credit.kind in ("team_mean", "per_partner") or self.protocol.kind in ("solo", "team", "chat")
        if alone and self.credit.kind != "raft" and getattr(self.draw, "episodes", 2) < 2:
            raise ValueError(f"draw.episodes = 1 leaves credit.kind = {self.credit.kind} nothing to compare with; give 2 or more")
        return self

    def conditions(self) -> dict[str, Any]:
        """What two runs must have in common to be compared: everything but who they are, what only affects speed or the disk, and
        where files lie on this machine."""
        settings = self.model_dump(mode="json", exclude={"recipe", "profile", "arm", "seed", "engine"})
        for key in ("checkpoint_every", "keep_checkpoints", "sample_episodes", "tokens_per_micro_batch", "gradient_checkpointing"):
            settings["train"].pop(key)
        settings["evaluate"].pop("sample_episodes")
        settings["evaluate"].pop("before")
        settings["evaluate"].pop("repeats")  # of the untrained model, beside its score
        # vLLM cannot take our sampling noise, so its messages are not those of the other engines
        settings["noise"] = "vllm" if self.engine.kind == "vllm" else "shared"
        settings["model"].pop("device")
        settings["plugins"] = [{**plugin, "path": Path(plugin["path"]).name} for plugin in settings["plugins"]]
        for table, key in (("model", "path"), ("model", "chat_template"), ("tasks", "path"), ("tasks", "held_out_path")):
            if settings[table].get(key):
                settings[table][key] = Path(settings[table][key]).name
        if "partner" in settings["cast"]:
            settings["cast"]["partner"] = player_name(settings["cast"]["partner"])
        for table in ("cast", "evaluate"):
            if "partners" in settings[table]:
                settings[table]["partners"] = [player_name(partner) for partner in settings[table]["partners"]]
        return settings

    @property
    def evaluation_sampling(self) -> EvaluationSamplingConfig:
        return self.evaluate.sampling or EvaluationSamplingConfig(temperature=self.sampling.temperature)
