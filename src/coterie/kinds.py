"""The kinds that a configuration can name, and what makes an object of each: where `kind = "chat"` becomes a `Chat`.

coterie registers its own (`builtin.py`); a plugin, one file of the user's, registers further ones in the same way:

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
import traceback
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union

from pydantic import Field, create_model

from coterie.config.base import Config
from coterie.config.learn import BUILT_IN
from coterie.config.run import EvaluateConfig, RunConfig
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
        """Whether a built-in model plays, which knows one form of prompt only."""
        return self.run.model.path in BUILT_IN


@dataclass(frozen=True, slots=True)
class Kind:
    table: Table
    name: str
    config: type[Config]
    make: Callable[[Any, About], Any]
    built_in: bool


_kinds: dict[tuple[str, str], Kind] = {}
_plugins: dict[str, str] = {}
"""The module that each plugin file was last imported as."""


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
    if known and (known.built_in or _file(known.config) != _file(config)):
        raise CoterieError(f'register: {table}.kind = "{names[0]}" is taken; give the kind another name')
    _kinds[table, names[0]] = Kind(table, names[0], config, factory, built_in)
    run_config.cache.clear()


def _file(config: type[Config]) -> str:
    """Where a kind comes from. A plugin may be loaded twice in one process: by coterie, and by its own test with an import."""
    return getattr(sys.modules.get(config.__module__), "__file__", None) or config.__module__


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
                choices = Annotated[Union[(field.annotation, *further)], Field(discriminator="kind")]
                fields[table] = (choices, field.default)
                if table == "protocol":  # also names protocols
                    also = (dict[str, choices], Field(default_factory=dict))
                    evaluation = create_model("EvaluateConfig", __base__=EvaluateConfig, also=also)
                    fields["evaluate"] = (evaluation, evaluation())
        return create_model("RunConfig", __base__=RunConfig, **fields) if fields else RunConfig


run_config = _RunConfigs()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def load_plugins(files: Iterable[str | Path | Mapping[str, str]]) -> list[dict[str, str]]:
    """Import plugin files, once each, and return them as `plugins` of a run's configuration. A file given with the digest that a
    run was begun with is refused when its bytes have changed; one that was imported before and has changed since replaces what it
    had registered. Raises CoterieError, with file and line, for anything that keeps one from loading."""
    loaded = []
    for file in files:
        wanted = file.get("sha256") if isinstance(file, Mapping) else None
        path = Path(file["path"] if isinstance(file, Mapping) else file).expanduser().resolve()
        if not path.is_file():
            raise CoterieError(
                f"plugin {path}: there is no such file; give a Python file that registers kinds (docs/write-a-protocol.md)"
            )
        found = digest(path)
        if wanted not in (None, found):
            raise CoterieError(f"plugin {path} has changed since the run began; put the old file back, or begin a new run")
        _import(path, found)
        loaded.append({"path": str(path), "sha256": found})
    return loaded


def load_entry_points() -> None:
    """Import the modules that installed packages name in the entry point group `coterie.kinds`."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    if points:
        _built_in_first()
    for point in points:
        try:
            point.load()
        except Exception as error:
            said = str(error) if isinstance(error, CoterieError) else f"{type(error).__name__}: {error}"
            raise CoterieError(f"entry point {point.name} of {ENTRY_POINTS} failed to load: {said}") from error


def _built_in_first() -> None:
    """Names are taken by whoever comes first, so coterie's own kinds must be there before anybody else's."""
    from coterie import builtin  # noqa: F401


def _import(path: Path, found: str) -> None:
    name = f"coterie_plugin_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:4]}{found[:8]}"
    if _plugins.get(str(path)) == name:
        return
    _built_in_first()
    _forget(_plugins.pop(str(path), None))  # an older text of the same file, in a notebook for example
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CoterieError(f"plugin {path}: not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        _forget(name)
        said = str(error) if isinstance(error, CoterieError) else f"{type(error).__name__}: {_message(error)}"
        raise CoterieError(f"plugin {path}{_line_in(error, path)}: {said}") from error
    _plugins[str(path)] = name


def _forget(module: str | None) -> None:
    """Take back what a module has registered."""
    for key in [key for key, kind in _kinds.items() if kind.config.__module__ == module]:
        del _kinds[key]
    sys.modules.pop(module or "", None)
    run_config.cache.clear()


def _message(error: Exception) -> str:
    return error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())


def _line_in(error: BaseException, path: Path) -> str:
    """The last line of the file that the error came through, or at which it cannot be read."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f", line {error.lineno}"
    trace = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in trace if frame.filename == str(path)]
    return f", line {lines[-1]}" if lines else ""
