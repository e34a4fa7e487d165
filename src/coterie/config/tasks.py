"""Where tasks come from and how their answers are graded."""

from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.config.base import Config, Count, Positive


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
    """GSM8K, with its facts split by the published rule where the protocol deals them to seats."""

    kind: Literal["gsm8k"]
    path: str | None = None
    """Folder with train.jsonl and test.jsonl; when absent, openai/gsm8k through the `datasets` extra."""
    train: Count = 1024
    held_out: Count = 300
    seed: int = 0


class MathTasksConfig(Config):
    """MATH (Hendrycks et al., 2103.03874), with MATH-500 held out. Not split: for protocols in which all copies see the problem."""

    kind: Literal["math"]
    path: str | None = None
    """Folder with train.jsonl and test.jsonl; when absent, the published sets through the `datasets` extra."""
    levels: tuple[Annotated[int, Field(ge=1, le=5)], ...] = Field(default=(3, 4, 5), min_length=1)
    """Only problems of these levels."""
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


class ReasoningGymTasksConfig(Config):
    """ReasoningGYM's procedural problems (extra `gym`), by default the nine specialties of the SAPO experiments."""

    kind: Literal["reasoning_gym"]
    specialties: tuple[str, ...] = Field(
        default=(
            "base_conversion",
            "basic_arithmetic",
            "arc_1d",
            "bf",
            "propositional_logic",
            "fraction_simplification",
            "decimal_arithmetic",
            "calendar_arithmetic",
            "binary_matrix",
        ),
        min_length=1,
    )
    """Which data sets; they take turns."""
    settings: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """A data set's own settings, whole, by its name; those of the released SAPO code when absent."""
    train: Count = 4096
    held_out: Count = 400
    """How many held-out tasks. A question is held out by its hash, so no seed ever trains on it."""
    seed: Annotated[int, Field(ge=0)] = 0
    """The data seed. Two seeds share no item."""


class PocketSpecialtiesTasksConfig(Config):
    """Pocket problems in specialties, each problem named by a reference that members of a swarm can exchange."""

    kind: Literal["pocket_specialties"]
    specialties: tuple[str, ...] | None = None
    """Which specialties; when absent, the eight that the pocket model was pre-trained on."""
    train: Count = 4096
    held_out: Count = 400
    seed: Annotated[int, Field(ge=0)] = 0


TasksConfig = Annotated[
    PocketTasksConfig
    | GSM8KTasksConfig
    | MathTasksConfig
    | JsonlTasksConfig
    | ReasoningGymTasksConfig
    | PocketSpecialtiesTasksConfig,
    Field(discriminator="kind"),
]


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


class ReasoningGymGraderConfig(Config):
    """The scorer of each ReasoningGYM data set, partial credit kept."""

    kind: Literal["reasoning_gym"]


GradingConfig = Annotated[
    NumericGraderConfig | ExactGraderConfig | MathVerifyGraderConfig | ReasoningGymGraderConfig, Field(discriminator="kind")
]
