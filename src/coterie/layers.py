"""Layers of settings, as nested dictionaries: how they are written, merged, and where the files that they name lie."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from coterie.config import Config
from coterie.config.learn import BUILT_IN
from coterie.config_errors import models_in
from coterie.kinds import run_config
from coterie.types import CoterieError

Settings = dict[str, Any]


def parse_overrides(pairs: Iterable[str]) -> Settings:
    """`key=value` pairs as nested settings; a value is read as TOML, and as a plain string where it is not TOML."""
    settings: Settings = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not all(key.split(".")):
            raise CoterieError(f"--set {pair}: write it as key=value, for example --set train.steps=20")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        *parents, last = key.split(".")
        table = settings
        for parent in parents:
            table = table.setdefault(parent, {})
            if not isinstance(table, dict):
                raise CoterieError(f"--set {pair}: {parent} is given both as a value and as a table")
        table[last] = value
    return settings


def merge(base: Mapping[str, Any], layer: Mapping[str, Any], models: Sequence[type[Config]] | None = None) -> Settings:
    """Deep merge; a table of another `kind` replaces instead, where kinds have settings of their own. `models` are those that the
    tables are parsed with; they say what kind a table has that names none.

    Another protocol keeps the settings that it shares with the old one: a name means the same in every protocol, and the caps of a
    profile belong to its model. Any other table starts afresh: `held_out` of one data set says nothing about another.
    """
    models = (run_config(),) if models is None else models
    merged = dict(base)
    for key, value in layer.items():
        old = merged.get(key)
        fields = [one.model_fields[key] for one in models if key in one.model_fields]
        inner = [model for field in fields for model in models_in(field.annotation)]
        if not isinstance(value, Mapping):
            merged[key] = value
        elif isinstance(old, Mapping) and _same_kind(old, value, fields, inner):
            merged[key] = merge(old, value, inner)
        else:
            shared = _shared(old, value, inner) if key == "protocol" and isinstance(old, Mapping) else {}
            merged[key] = {**shared, **value}
    return merged


def _same_kind(old: Mapping[str, Any], new: Mapping[str, Any], fields: Sequence[Any], inner: Sequence[type[Config]]) -> bool:
    if "kind" not in new or len(inner) == 1:
        return True
    default = next((getattr(field.default, "kind", None) for field in fields), None)
    return new["kind"] == old.get("kind", default)


def _shared(old: Mapping[str, Any], new: Mapping[str, Any], inner: Sequence[type[Config]]) -> Settings:
    of_new = next((one for one in inner if new["kind"] in getattr(one.model_fields["kind"].annotation, "__args__", ())), None)
    return {key: value for key, value in old.items() if of_new and key in of_new.model_fields and key != "kind"}


def beside(layer: Mapping[str, Any], folder: Path) -> Settings:
    """A recipe file's layer with the relative paths in it counted from `folder`, where the recipe lies. A model and a partner may
    be names as well as folders, so they are taken for paths only where something lies there."""
    settings = {table: dict(of) if isinstance(of, Mapping) else of for table, of in layer.items()}

    def fix(table: str, key: str, needed: bool = False) -> None:
        of = settings.get(table)
        given = of.get(key) if isinstance(of, dict) else None
        if isinstance(of, dict) and given is not None:
            several = isinstance(given, list | tuple)
            found = [_beside(one, folder, needed) for one in (given if several else [given])]
            of[key] = found if several else found[0]

    for key in ("path", "held_out_path"):
        fix("tasks", key, needed=True)
    fix("model", "chat_template", needed=True)
    fix("model", "path")
    for table, key in (("cast", "partner"), ("cast", "partners"), ("evaluate", "partners")):
        fix(table, key)
    return settings


def _beside(given: Any, folder: Path, needed: bool) -> Any:
    if not isinstance(given, str) or Path(given).expanduser().is_absolute() or given.startswith("~"):
        return given
    path = folder / given
    return str(path.resolve()) if needed or (given not in (*BUILT_IN, "base") and path.exists()) else given


def leaves(settings: Mapping[str, Any], prefix: str = "") -> list[str]:
    """The dotted keys of all settings below `settings`."""
    found = []
    for key, value in settings.items():
        path = f"{prefix}{key}"
        found += leaves(value, f"{path}.") if isinstance(value, Mapping) and value else [path]
    return found
