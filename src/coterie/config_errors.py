"""What pydantic found wrong with a configuration, in one sentence: the user's key, and the nearest key that exists."""

import difflib
import typing
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from coterie.config import Config


def describe(error: ValidationError, model: type[Config]) -> str:
    """The first problem of `error`, found while `model` was parsed."""
    first = error.errors()[0]
    keys, beside = locate(error, model)
    dotted = ".".join(keys)
    known = first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            parent = ".".join(keys[:-1])
            near = [f"{parent}.{name}" if parent else name for name in beside]
            return f"{dotted} is not a setting{meant(dotted, near) or '; `coterie settings` lists them'}"
        case "missing":
            return f"{dotted} is missing"
        case "union_tag_invalid":
            return f"{dotted}.kind: {known.get('tag')} is not one of {known.get('expected_tags')}"
        case "union_tag_not_found":
            return f"{dotted}.kind is missing"
        case "value_error":
            said = first["msg"].removeprefix("Value error, ")
            return f"{dotted}: {said}" if dotted else said
        case "tuple_type":
            return f'{dotted}: give a list, for example {dotted}=["A", "B"], not {first["input"]!r}'
        case _:
            return f"{dotted}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}"


def locate(error: ValidationError, model: type[Config]) -> tuple[list[str], list[str]]:
    """The user's keys down to the first problem, and the names of the settings that exist beside the last of them.

    pydantic's location holds the tag of each discriminated union on the way, which the user did not write; the walk through the
    models tells tags from keys.
    """
    keys: list[str] = []
    current = beside = [model]
    for part in error.errors()[0]["loc"]:
        fields = [one.model_fields[part] for one in current if part in one.model_fields]
        if fields:
            keys.append(str(part))
            beside, current = current, [m for field in fields for m in models_in(field.annotation)]
        elif tagged := [one for one in current if part in _kinds(one)]:
            current = beside = tagged
        else:
            keys.append(str(part))
            beside, current = current, []
    return keys, [name for one in beside for name in one.model_fields]


def meant(name: str, names: Iterable[str]) -> str:
    """A guess at what a misspelt name was meant to be, as the end of a sentence; empty when nothing is near."""
    close = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f"; did you mean {close[0]}?" if close else ""


def _kinds(model: type[Config]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return typing.get_args(field.annotation) if field else ()


def models_in(annotation: Any) -> list[type[Config]]:
    """The configuration models that a field's annotation names."""
    if isinstance(annotation, type) and issubclass(annotation, Config):
        return [annotation]
    return [model for argument in typing.get_args(annotation) for model in models_in(argument)]


def differences(a: Any, b: Any, prefix: str = "") -> list[str]:
    """The dotted keys in which two nested dictionaries differ."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return [path for key in sorted({*a, *b}) for path in differences(a.get(key), b.get(key), f"{prefix}{key}.")]
    return [] if a == b else [prefix.rstrip(".")]
