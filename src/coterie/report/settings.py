"""Every setting with its default and meaning, read from the configuration models themselves."""

import typing
from collections.abc import Iterator

from pydantic.fields import FieldInfo

from coterie.config import Config
from coterie.config_errors import models_in
from coterie.kinds import run_config


def settings(model: type[Config] | None = None, prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """(key, default as it would be written after `--set key=`, meaning) of every setting below `model`; settings of one kind of a
    table carry that kind in brackets, and `kind` comes first, with what the kind is."""
    model = model or run_config()
    for name, field in sorted(model.model_fields.items(), key=lambda item: item[0] != "kind"):
        if not prefix and name in ("recipe", "profile", "arm", "seed", "plugins"):
            continue  # these have options of their own
        tables = [] if typing.get_origin(field.annotation) is dict else models_in(field.annotation)
        if not tables:
            about = model.__doc__ if name == "kind" and not field.description else field.description
            yield prefix + name, _written(field), about or ""
        for table in tables:
            kind = f"[{_kind_of(table.model_fields['kind'])}]" if len(tables) > 1 else ""
            yield from settings(table, f"{prefix}{name}{kind}.")


def _written(field: FieldInfo) -> str:
    if field.is_required():
        return _kind_of(field) or "(needed)"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return str(value).lower()
    return "(none)" if value is None else str(list(value) if isinstance(value, tuple) else value).replace("'", '"')


def _kind_of(field: FieldInfo) -> str:
    return str(typing.get_args(field.annotation)[0]) if typing.get_origin(field.annotation) is typing.Literal else ""
