"""How a node reaches the others of its swarm. In `swarm.toml`, not in a run's configuration: a node may move to other hubs, and let
in other keys, without becoming another run."""

from typing import Annotated, Any, Literal

from pydantic import Field

from coterie.config.base import Config


class SqliteExchangeConfig(Config):
    """One file of this machine, for all nodes of a swarm's folder."""

    kind: Literal["sqlite"] = "sqlite"
    path: str = "exchange.sqlite"
    """Counted from the swarm's folder. On a disk of this machine: SQLite's WAL does not work over a network."""


class FolderExchangeConfig(Config):
    """A folder that several machines have mounted."""

    kind: Literal["folder"]
    path: str
    """Where it is on this machine."""


class ZenohExchangeConfig(Config):
    """A network. Who can be reached listens (a hub); who cannot, behind NAT, names hubs."""

    kind: Literal["zenoh"]
    listen: tuple[str, ...] = ()
    """Endpoints at which others reach this node, for example "tcp/192.0.2.7:7447"."""
    hubs: tuple[str, ...] = ()
    """Endpoints of nodes that listen; two or more, so that the end of one leaves a way."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """zenoh's own, by key, for example "transport/link/tls" = { … }; they win over coterie's."""


ExchangeConfig = Annotated[SqliteExchangeConfig | FolderExchangeConfig | ZenohExchangeConfig, Field(discriminator="kind")]


class MembershipConfig(Config):
    """`swarm.toml`: of a swarm's folder, what its next node begins with; of a node's folder, what it is played with."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    """Of the swarm; `swarm.name` of its nodes."""
    exchange: ExchangeConfig = SqliteExchangeConfig()
    allowed: tuple[str, ...] | None = None
    """The keys (64 hex digits) that are let in; those of `swarm.allowed` when absent."""
    words: str = ""
    """What the first node of the folder was asked for on the command line, to be told to those who join on other machines."""
