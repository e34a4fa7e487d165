"""From what was asked for on the command line to a node's settings and its way to the others; nothing is written here."""

import re
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from coterie.assemble import write_script
from coterie.config import RunConfig
from coterie.config.exchange import (
    ExchangeConfig,
    FolderExchangeConfig,
    MembershipConfig,
    SqliteExchangeConfig,
    ZenohExchangeConfig,
)
from coterie.config.swarm import SwarmConfig
from coterie.config_errors import describe
from coterie.kinds import load_plugins, run_config
from coterie.layers import Settings, merge, parse_overrides
from coterie.recipe import choose_arms, choose_profile, load_recipe, read_toml, resolve
from coterie.swarm.envelope import MAX_BYTES
from coterie.swarm.exchange.base import NODE
from coterie.swarm.exchange.links import links, load, to_config
from coterie.swarm.identity import is_node_id
from coterie.swarm.settings import check
from coterie.types import CoterieError

RECIPE, ARM = "sapo", "4-4"
_ENDPOINT = re.compile(r"(tcp|tls|quic|udp|ws)/\S+:\d{1,5}(#\S+)?")


@dataclass(frozen=True, slots=True)
class Settled:
    """What a node shall play, as it was asked for."""

    recipe: str | None = None
    arm: str | None = None
    profile: str | None = None
    model: str | None = None
    sets: tuple[str, ...] = ()
    rounds: int | None = None
    plugins: tuple[Path, ...] = ()

    @property
    def words(self) -> str:
        """The same, for another command line; "" when nothing was asked for."""
        given: list[str] = []
        for name in ("recipe", "arm", "profile", "model", "rounds"):
            value = getattr(self, name)
            given += [f"--{name}", str(value)] if value is not None else []
        for name, values in (("--set", self.sets), ("--plugin", self.plugins)):
            given += [name, *map(str, values)] if values else []
        return shlex.join(given)

    def _overrides(self) -> Settings:
        overrides = parse_overrides(self.sets)
        if self.model is not None:
            overrides.setdefault("model", {})["path"] = self.model
        if self.rounds is not None:
            if self.rounds < 1:
                raise CoterieError(f"--rounds {self.rounds}: give 1 or more")
            overrides.setdefault("train", {})["steps"] = self.rounds
        return overrides

    def resolved(self, cuda: bool) -> RunConfig:
        """From a recipe; seed 0 stands for the one that the node gets."""
        overrides = self._overrides()
        recipe = load_recipe(self.recipe or RECIPE, self.plugins)
        profile = choose_profile(recipe, self.profile, overrides.get("model", {}).get("path"), cuda)
        best = ARM if ARM in recipe.file.arms else recipe.file.baseline
        (arm,) = choose_arms(recipe, [self.arm or best])
        return _with_swarm(resolve(recipe, profile=profile, arm=arm, seed=0, overrides=overrides))

    def like(self, first: RunConfig, cuda: bool) -> RunConfig:
        """As another node of the swarm plays, but for what was asked for."""
        if self.recipe or self.arm or self.profile:
            return self.resolved(cuda)
        merged = merge(first.model_dump(mode="json", exclude_none=True), self._overrides())
        plugins = load_plugins(self.plugins)
        merged["plugins"] = [*merged.get("plugins", ()), *(one for one in plugins if one not in merged.get("plugins", ()))]
        try:
            return _with_swarm(run_config().model_validate(merged))
        except ValidationError as error:
            raise CoterieError(f"the command line: {describe(error, run_config())}") from None


def _with_swarm(config: RunConfig) -> RunConfig:
    return config if config.swarm is not None else config.model_copy(update={"swarm": SwarmConfig()})


def swarm_of(config: RunConfig) -> SwarmConfig:
    return config.swarm or SwarmConfig()


@dataclass(frozen=True, slots=True)
class Links:
    """The way to the others, as it was asked for."""

    listen: tuple[str, ...] = ()
    hubs: tuple[str, ...] = ()
    shared: Path | None = None
    zenoh: Path | None = None
    """A TOML file of zenoh's own settings."""
    allow: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.shared is not None and (self.listen or self.hubs or self.zenoh):
            raise CoterieError("--shared and --listen, --hub or --zenoh are two ways to the others; give one")
        if self.zenoh is not None and not (self.listen or self.hubs):
            raise CoterieError("--zenoh: give --listen or --hub too, without which there is no network to set up")
        for name, endpoints in (("--listen", self.listen), ("--hub", self.hubs)):
            for endpoint in endpoints:
                if not _ENDPOINT.fullmatch(endpoint):
                    raise CoterieError(f"{name} {endpoint}: write it as tcp/ADDRESS:PORT, for example tcp/192.0.2.7:7447")
        for key in self.allow:
            if not is_node_id(key):
                raise CoterieError(f"--allow {key[:80]}: a key is 64 digits of 0-9 a-f, as a node says when it starts")

    @property
    def exchange(self) -> ExchangeConfig | None:
        """None when nothing was asked for."""
        if self.shared is not None:
            return FolderExchangeConfig(kind="folder", path=str(self.shared.expanduser().absolute()))
        if self.listen or self.hubs:
            settings = _beside(read_toml(self.zenoh), self.zenoh.parent) if self.zenoh else {}
            return ZenohExchangeConfig(kind="zenoh", listen=self.listen, hubs=self.hubs, settings=settings)
        return None

    def membership(self, name: str, words: str = "") -> MembershipConfig:
        return MembershipConfig(
            name=name, exchange=self.exchange or SqliteExchangeConfig(), allowed=self.allow or None, words=words
        )

    def changed(self, old: MembershipConfig) -> MembershipConfig:
        """`old` but for what was asked for."""
        return old.model_copy(update={"exchange": self.exchange or old.exchange, "allowed": self.allow or old.allowed})


def _beside(settings: Settings, folder: Path) -> Settings:
    """Files that the settings name, by absolute path: those of certificates, counted from where the settings lie."""

    def place(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: place(inner) for key, inner in value.items()}
        if isinstance(value, str) and (folder / value).is_file():
            return str((folder / value).absolute())
        return value

    return place(settings)


def further(exchange: ExchangeConfig) -> ExchangeConfig:
    """How a second node of one machine reaches the others: over a network as a client of the first. It could not listen at the same
    port; and a peer that others cannot reach gets nothing from them, where a client does (exchange/zenoh.py)."""
    if not isinstance(exchange, ZenohExchangeConfig):
        return exchange
    return exchange.model_copy(update={"listen": (), "hubs": tuple(dict.fromkeys((*exchange.listen, *exchange.hubs)))})


def refuse(config: RunConfig, membership: MembershipConfig) -> None:
    """Raise CoterieError for what could not be played or reached, before anything is written and without loading weights."""
    settings, exchange = swarm_of(config), membership.exchange
    if settings.name != membership.name:
        raise CoterieError(
            f"swarm.name = {settings.name}, but the swarm of this folder is {membership.name}; what is sent to another swarm is "
            "dropped, so choose another folder, or leave swarm.name out"
        )
    if isinstance(exchange, ZenohExchangeConfig):
        zenoh = load()
        if not NODE.fullmatch(membership.name):
            raise CoterieError(
                f"swarm.name = {membership.name}: over a network a swarm's name is 1 to 64 characters of 0-9, a-z, _ and -; "
                "give another one with --set swarm.name=…"
            )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the only hub: said when the node starts
            to_config(zenoh, links(exchange.listen, exchange.hubs, MAX_BYTES) | exchange.settings)
    elif isinstance(exchange, FolderExchangeConfig) and not Path(exchange.path).parent.is_dir():
        raise CoterieError(f"--shared {exchange.path}: there is no folder {Path(exchange.path).parent}; mount it, or give another")
    if config.train.steps < 1:
        raise CoterieError("train.steps = 0: a node plays 1 round or more")
    script = write_script(config)
    check(config, settings, script.tasks, script.protocol, script.reader.tokenizer)


def ways_to_join(membership: MembershipConfig, folder: Path) -> Sequence[str]:
    """The commands with which others join."""
    exchange = membership.exchange
    lines = [f"coterie swarm join {shlex.quote(str(folder))}    (in another terminal of this machine)"]
    there = f"coterie swarm join FOLDER {membership.words}".rstrip()
    if isinstance(exchange, FolderExchangeConfig):
        lines.append(f"{there} --shared {shlex.quote(exchange.path)}    (on a machine that has mounted it)")
    elif isinstance(exchange, ZenohExchangeConfig):
        hubs = " ".join(dict.fromkeys((*exchange.listen, *exchange.hubs)))
        lines.append(f"{there} --hub {hubs}    (on another machine)")
    return lines
