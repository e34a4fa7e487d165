"""The kinds that a configuration can name, and what makes an object of each: where `kind = "chat"` becomes a `Chat`.

coterie registers its own (`assemble.py`); a plugin, one file of the user's, registers further ones in the same way:

    from coterie.kinds import Config, register

    class EchoConfig(Config):
        kind: Literal["echo"]
        final_tokens: int = 64

    register("protocol", EchoConfig, lambda config, about: Echo(config.final_tokens))

A kind is registered with its configuration model, so that misspelt settings are refused and `coterie settings` lists it.
"""

import hashlib
import importlib.metadata
import importlib.util
import sys
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import Field, create_model

from coterie.config.base import Config
from coterie.config.run import RunConfig
from coterie.types import CoterieError

__all__ = ["About", "Config", "load_plugins", "make", "register", "run_config"]

Table = Literal["tasks", "grading", "protocol", "credit", "draw", "cast"]
TABLES: tuple[Table, ...] = typing.get_args(Table)
ENTRY_POINTS = "coterie.kinds"
"""An installed package whose entry point of this group names a module is imported like a plugin."""


@dataclass(frozen=True, slots=True)
class About:
    """What a factory may need to know beside its own configuration."""

    run: RunConfig
    fact_seats: tuple[str, ...] = ()
    """For tasks: the seats among which the protocol deals a problem's facts; none when every copy is given all of it."""

    @property
    def pocket(self) -> bool:
        """Whether the built-in model plays, which knows one form of prompt only."""
        return self.run.model.path == "pocket"


@dataclass(frozen=True, slots=True)
class Kind:
    table: Table
    name: str
    config: type[Config]
    make: Callable[[Any, About], Any]
    built_in: bool


_kinds: dict[tuple[str, str], Kind] = {}
_plugins: dict[str, str] = {}


def register(table: Table, config: type[Config], factory: Callable[[Any, About], Any], *, built_in: bool = False) -> None:
    """Make `kind = "<name>"` known in `table`. The name is the Literal of the field `kind` of `config`; `factory(config, about)`
    returns the object (see `protocols.base`, `credit.base`, `draws.base`, `casts.base`, `grading.base`, `tasks.base`).

    Raises CoterieError when the table or the field `kind` is not as it must be, or the name is taken.
    """
    if table not in TABLES:
        raise CoterieError(f"register: {table} is not a table; there are {', '.join(TABLES)}")
    names = typing.get_args(config.model_fields["kind"].annotation) if "kind" in config.model_fields else ()
    if len(names) != 1:
        raise CoterieError(f'register: {config.__name__} needs a field kind: Literal["its name"]')
    known = _kinds.get((table, names[0]))
    if known and (known.built_in or known.config.__module__ != config.__module__):
        raise CoterieError(f'register: {table}.kind = "{names[0]}" is taken; give the kind another name')
    _kinds[table, names[0]] = Kind(table, names[0], config, factory, built_in)
    run_config.cache.clear()


def make(table: Table, config: Any, about: About) -> Any:
    """The object that `config`, one table of a run's configuration, stands for."""
    return _kinds[table, config.kind].make(config, about)


class _RunConfigs:
    """The configuration model with the registered kinds among its choices."""

    def __init__(self) -> None:
        self.cache: dict[str, type[RunConfig]] = {}

    def __call__(self) -> type[RunConfig]:
        if "now" not in self.cache:
            self.cache["now"] = self._build()
        return self.cache["now"]

    def _build(self) -> type[RunConfig]:
        fields: dict[str, Any] = {}
        for table in TABLES:
            further = [kind.config for kind in _kinds.values() if kind.table == table and not kind.built_in]
            if further:
                field = RunConfig.model_fields[table]
                choices = Union[(field.annotation, *further)]
                fields[table] = (Annotated[choices, Field(discriminator="kind", default=field.default)], field.default)
        return create_model("RunConfig", __base__=RunConfig, **fields) if fields else RunConfig


run_config = _RunConfigs()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_plugins(files: Iterable[str | Path | Mapping[str, str]]) -> list[dict[str, str]]:
    """Import plugin files, once each, and return them as `plugins` of a run's configuration. A file given with the digest that a
    run was begun with is refused when its bytes have changed. Raises CoterieError for anything that keeps one from loading."""
    loaded = []
    for file in files:
        wanted = file.get("sha256") if isinstance(file, Mapping) else None
        path = Path(file["path"] if isinstance(file, Mapping) else file).expanduser().resolve()
        if not path.is_file():
            raise CoterieError(f"plugin {path}: there is no such file")
        found = digest(path)
        if wanted not in (None, found):
            raise CoterieError(f"plugin {path} has changed since the run began; put the old file back, or begin a new run")
        if _plugins.get(str(path)) != found:
            _import(path, found)
            _plugins[str(path)] = found
        loaded.append({"path": str(path), "sha256": found})
    return loaded


def load_entry_points() -> None:
    """Import the modules that installed packages name in the entry point group `coterie.kinds`."""
    for point in importlib.metadata.entry_points(group=ENTRY_POINTS):
        try:
            point.load()
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise CoterieError(f"entry point {point.name} of {ENTRY_POINTS} failed to load: {said}") from error


def _import(path: Path, found: str) -> None:
    name = f"coterie_plugin_{path.stem}_{found[:8]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CoterieError(f"plugin {path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except CoterieError as error:
        raise CoterieError(f"plugin {path}: {error}") from error
    except Exception as error:
        line = _line_in(error, path)
        raise CoterieError(f"plugin {path}{line}: {type(error).__name__}: {error}") from error


def _line_in(error: BaseException, path: Path) -> str:
    lines: Sequence[int] = []
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == str(path):
            lines = [*lines, trace.tb_lineno]
        trace = trace.tb_next
    return f", line {lines[-1]}" if lines else ""
