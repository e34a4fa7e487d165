"""A node of a swarm: what it shares, and what it learns from others."""

from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from coterie.config.base import Config, Count, NonNegative, Positive

_Groups = Annotated[int, Field(ge=0)]


class FixedExternalConfig(Config):
    """The same number of foreign groups in every round, as in the published experiment (4 of 8 did best there)."""

    kind: Literal["fixed"] = "fixed"
    groups: _Groups = 4
    """J. 0 is plain RL: nothing is read from the exchange."""


class LinearExternalConfig(Config):
    """From one number to another in equal steps."""

    kind: Literal["linear"]
    first: _Groups
    """J in the first round."""
    last: _Groups
    """J from round `rounds` on."""
    rounds: Count
    """After how many rounds `last` is reached."""


class _Between(Config):
    least: _Groups = 0
    """The smallest J."""
    most: _Groups = 6
    """The largest J."""
    window: Annotated[int, Field(ge=1, le=100)] = 20
    """How many rounds are looked at."""

    @model_validator(mode="after")
    def _in_order(self) -> "_Between":
        if self.least > self.most:
            raise ValueError(f"least = {self.least} is larger than most = {self.most}; swap them")
        return self


class UsefulExternalConfig(_Between):
    """More foreign groups the larger the share of useful ones among those that came in: between `least` (none was) and `most`
    (all were)."""

    kind: Literal["useful"]


class FallingExternalConfig(_Between):
    """One foreign group fewer when the own reward falls from one window to the next, one more when it rises. Begins with `most`."""

    kind: Literal["falling"]
    tolerance: NonNegative = 0.01
    """A change of reward that counts as none."""


ExternalConfig = Annotated[
    FixedExternalConfig | LinearExternalConfig | UsefulExternalConfig | FallingExternalConfig, Field(discriminator="kind")
]


class SwarmConfig(Config):
    """Sharing of rollouts (SAPO, arXiv:2509.08721). A round learns from `train.tasks_per_step` groups: J foreign ones, which
    `external` decides, and I own ones, which are the rest; `train.steps` is the number of rounds."""

    name: Annotated[str, Field(min_length=1, max_length=128)] = "swarm"
    """Which swarm; what is sent to another one is dropped."""
    nodes: Count = 4
    """How many nodes a run of `coterie run` has. `coterie swarm` starts one at a time."""
    lockstep: bool = True
    """In `coterie run`: one process plays a round of all nodes, then lets all of them learn, so that a run repeats to the bit. Else
    every node is a process with a pace of its own, as in a real swarm."""
    models: tuple[str, ...] = ()
    """Models of the nodes of `coterie run`, in turn, where they differ; `model.path` for all when absent."""
    external: ExternalConfig = FixedExternalConfig()
    fill: bool = False
    """Where fewer than J foreign groups can be drawn, play own ones in their place. They are then drawn before the round's own
    tasks are played, so that what others share meanwhile comes a round later."""
    source: Literal["others", "own"] = "others"
    """"own" is the control for "others": the node's own groups of earlier rounds, as text, instead of foreign ones."""
    share: Literal["all", "useful", "none"] = "all"
    """Which own groups are published: all, as in the paper; those whose rewards are not all equal; or none."""
    share_at_most: Count | None = None
    """Most groups published in a round, chosen at random; all when absent."""
    only_useful: bool = True
    """Leave foreign groups with equal rewards out of the pool, as in the paper's controlled runs; its open demo did not."""
    drawn: Literal["uniform", "weighted"] = "uniform"
    """"weighted": by the sender's reputation; a node has its weight however many groups it sends, at most an
    eighth of a draw where enough are known; newcomers share what is left, between a tenth and a half."""
    uses: Count = 1
    """In how many rounds one foreign group may be learned from."""
    max_age: Count = 16
    """For how many rounds a foreign group can be drawn, the one in which it came in included."""
    pool_groups: Count = 512
    """Most groups to draw from, the newest."""
    divide_by_std: bool = False
    """Divide advantages, own and foreign, by their group's standard deviation (n - 1, plus 1e-8), as GRPO and the paper do. Dr.
    GRPO (2503.20783) shows that this weighs tasks by their difficulty."""
    correction: Literal["none", "clipped"] = "none"
    """What the loss takes as old log-probabilities of foreign text. "none", as published: the node's own of this very step, so
    every ratio begins at 1 and nothing is corrected. "clipped": the node's own of when it received the text, so that the clip
    bounds how far text that has waited in the pool may be pushed on."""
    allowed: tuple[str, ...] | None = None
    """The keys (64 hex digits) that are let in; everybody when absent."""
    keep_seconds: Positive = 3600.0
    """How old an envelope may be when it is received, by its sender's clock."""

    @field_validator("correction", mode="before")
    @classmethod
    def _no_sequence_weights(cls, value: object) -> object:
        if value == "sequence":
            raise ValueError(
                "a truncated sequence-level weight is the policy over the generator's, whose log-probabilities are not sent; nor "
                'could a stranger\'s be believed; use "clipped"'
            )
        return value
