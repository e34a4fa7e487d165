"""How episodes are played: protocol, credit, draw and cast."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from coterie.config.base import Config, Count, Fraction, NonNegative

Wording = Literal["auto", "plain", "pocket"]
"""The words of the prompts. "auto" takes "pocket" for the built-in model and "plain" for every other."""

# protocol


class SoloConfig(Config):
    """One copy, one answer."""

    kind: Literal["solo"]
    final_tokens: Count = 256
    """Cap of the answer, in tokens."""
    wording: Literal["auto", "plain", "tagged", "pocket"] = "auto"
    """The words of the prompts; "auto": those that the built-in model knows when it plays, otherwise "tagged" (the answer between
    <answer> and </answer>) for tasks of reasoning-gym, and "plain" (in a box) for all others."""


class TeamConfig(Config):
    """One copy writes the lines of several speakers (Solver, Checker, Lead) in one reply."""

    kind: Literal["team"]
    final_tokens: Count = 512
    """Cap of the reply, in tokens."""
    wording: Wording = "auto"
    """The words of the prompts; "auto": those that the built-in model knows when it plays, otherwise "plain"."""


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
    history: Literal["rebuilt", "dialogue"] = "rebuilt"
    """How earlier messages are shown: "rebuilt": one user message with the talk so far as lines; "dialogue": the chat itself, own
    messages as the assistant's, whose prompts extend each other."""
    wording: Wording = "auto"
    """The words of the prompts; "auto": those that the built-in model knows when it plays, otherwise "plain"."""

    @field_validator("order")
    @classmethod
    def _two_seats(cls, order: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(order)) < 2:
            raise ValueError("needs at least two different seats, for example ['A', 'B', 'A', 'B']")
        return order


class BoardConfig(Config):
    """Copies post a note each; then each reads the notes that it may see and answers."""

    kind: Literal["board"]
    copies: Annotated[int, Field(ge=2)] = 4
    """How many copies; copy i is writer i and then reader i."""
    visibility: Literal["own", "all", "ring"] = "all"
    """Which notes a reader sees: its own copy's; all; or "ring": its own and the next `ring` - 1."""
    ring: Annotated[int, Field(ge=2)] = 2
    """How many notes a reader sees with visibility = "ring"."""
    facts: Literal["shared", "split"] = "shared"
    """"shared": every copy is given the whole problem. "split": the facts are dealt in two, even copies hold one half and odd ones
    the other, so that a reader needs a note of the other kind."""
    message_tokens: Count = 256
    """Cap of a note, in tokens."""
    final_tokens: Count = 384
    """Cap of a reader's answer, in tokens."""
    wording: Wording = "auto"
    """The words of the prompts; "auto": those that the built-in model knows when it plays, otherwise "plain"."""


class DebateConfig(Config):
    """Copies answer, read each other's answers and revise, for a number of rounds."""

    kind: Literal["debate"]
    copies: Annotated[int, Field(ge=2)] = 3
    """How many copies answer."""
    rounds: Annotated[int, Field(ge=1)] = 2
    """Answers of each copy; the last is final."""
    deliver: bool = True
    """False is the vote of equal budget: every answer of every round is given without having seen another, and all of them vote."""
    reward: Literal["mean", "vote"] = "vote"
    """The team reward: the mean score of the final answers, or the score of the answer that most of them give."""
    final_tokens: Count = 256
    """Cap of each answer, in tokens."""
    wording: Wording = "auto"
    """The words of the prompts; "auto": those that the built-in model knows when it plays, otherwise "plain"."""


ProtocolConfig = Annotated[SoloConfig | TeamConfig | ChatConfig | BoardConfig | DebateConfig, Field(discriminator="kind")]


# credit


class CreditConfig(Config):
    """Options that every credit rule takes. They are added to a message's advantage after subtracting their mean over the messages
    of the same seat and kind in the group."""

    needs_graded_notes: ClassVar[bool] = False
    """Whether the rule pays messages that are not final by their own score, so that the protocol must have them graded."""

    length_cost: NonNegative = 0.0
    """Reward taken from a message for each 100 tokens that it has."""
    stop_bonus: NonNegative = 0.0
    """Reward for a message that ends by itself, before its cap."""


class TeamMeanConfig(CreditConfig):
    """Every message is credited with the team reward minus the mean over its group."""

    kind: Literal["team_mean"] = "team_mean"


class ZeroNotesConfig(CreditConfig):
    """Answers are credited with their own score minus the mean of the group's answers; other messages with nothing."""

    kind: Literal["zero_notes"]
    notes: Literal["zero", "left_out"] = "zero"
    """Whether messages that are no answers stay in the batch with an advantage of zero, so that the loss is divided by their tokens
    too, or are left out of it."""


class ReadersMeanConfig(CreditConfig):
    """As zero_notes, but a note is credited with the mean score of those who read it minus the mean over the notes."""

    kind: Literal["readers_mean"]


class LeaveOneOutConfig(CreditConfig):
    """A message is credited with its own effect: the score of those who heard it minus their score when they play again without."""

    kind: Literal["leave_one_out"]
    replays: Count = 1
    """How often each episode is played again without a message."""


class OwnAndReadersConfig(CreditConfig):
    """As readers_mean, and a note is also paid for the answer that it holds itself."""

    needs_graded_notes: ClassVar[bool] = True

    kind: Literal["own_and_readers"]
    weight: NonNegative = 1.0
    """Weight of the readers' part; the note's own part has weight 1."""


class RaftConfig(CreditConfig):
    """Imitate the winners: advantage 1 for every message of an episode whose team reward is 1, otherwise 0."""

    kind: Literal["raft"]


class PerPartnerConfig(CreditConfig):
    """As team_mean, with the mean over the episodes of the same cast only."""

    kind: Literal["per_partner"]


class PerRoleConfig(CreditConfig):
    """Every message is credited with its own seat's score minus the mean score of that role in the group."""

    kind: Literal["per_role"]


CreditRuleConfig = Annotated[
    TeamMeanConfig
    | ZeroNotesConfig
    | ReadersMeanConfig
    | LeaveOneOutConfig
    | OwnAndReadersConfig
    | RaftConfig
    | PerPartnerConfig
    | PerRoleConfig,
    Field(discriminator="kind"),
]


# draw


class FixedDrawConfig(Config):
    """The same number of episodes for every task."""

    kind: Literal["fixed"] = "fixed"
    episodes: Count = 4
    """Episodes of each task."""


class ReinforceAdaConfig(Config):
    """Rounds of episodes for every task until it shows both right and wrong ones; a few of each are kept (2510.04996)."""

    kind: Literal["reinforce_ada"]
    per_round: Count = 8
    """Episodes of an active task in each round."""
    rounds: Count = 4
    """Rounds at most."""
    exit: Literal["balanced", "positive", "spread"] = "balanced"
    """When a task is done: "balanced": `keep_high` right and `keep_low` wrong; "positive": `keep_high` right; "spread": two
    different rewards."""
    threshold: float = 0.7
    """An episode is right when its reward is above this."""
    keep_high: Count = 2
    """How many of the best episodes are kept."""
    keep_low: Count = 2
    """How many of the worst."""


class DynamicDrawConfig(Config):
    """A task whose episodes all have one reward is dropped and another drawn in its place (dynamic sampling, DAPO, 2503.14476)."""

    kind: Literal["dynamic"]
    episodes: Annotated[int, Field(ge=2)] = 4
    """Episodes of each task."""
    rounds: Count = 3
    """Rounds at most, the first included."""


DrawConfig = Annotated[FixedDrawConfig | ReinforceAdaConfig | DynamicDrawConfig, Field(discriminator="kind")]


# cast


class SelfPlayConfig(Config):
    """The policy in training sits in every seat."""

    kind: Literal["self_play"] = "self_play"


class MixedPartnersConfig(Config):
    """In a share of the episodes some seats are played by a partner that is not in training."""

    kind: Literal["mixed_partners"]
    share: Fraction = 0.5
    """Share of each group's episodes."""
    seats: tuple[str, ...] = Field(default=("B",), min_length=1)
    """Seats that the partner takes; with `alternate`, one of them in turn."""
    alternate: bool = False
    """Whether the partner takes one of `seats`, the next for each task, in place of all of them."""
    partner: str = "base"
    """"base" (the untrained model), the folder of a run or of a PEFT adapter, or the address of a server with an
    OpenAI-compatible API as http://host:port/v1#model."""


class PoolConfig(Config):
    """In a share of the episodes a seat is played by a member of a population of frozen players."""

    kind: Literal["pool"]
    share: Fraction = 0.5
    """Share of each group's episodes in which a member plays."""
    seats: tuple[str, ...] = Field(default=("A", "B"), min_length=1)
    """Seats that a member may take: one, the next for each task."""
    partners: tuple[str, ...] = ("base",)
    """The members at the start, written as `mixed_partners.partner`."""
    snapshot_every: Count | None = None
    """Every so many steps the policy as it is joins the pool, frozen."""
    largest: Count = 8
    """Snapshots at most; the oldest leaves."""
    by: Literal["uniform", "result"] = "uniform"
    """How a member is chosen: all alike, or the more often the worse the team does with it."""

    @model_validator(mode="after")
    def _has_members(self) -> "PoolConfig":
        if not self.partners and self.snapshot_every is None:
            raise ValueError("the pool has no members; give partners or snapshot_every")
        return self


CastConfig = Annotated[SelfPlayConfig | MixedPartnersConfig | PoolConfig, Field(discriminator="kind")]
