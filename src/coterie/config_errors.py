"""What pydantic found wrong with a configuration, in one sentence: the user's key, and the nearest key that exists."""

import difflib
import json
import typing
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from coterie.config import Config

_WANTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "greater_than_equal": "{ge:g} or more",
    "greater_than": "more than {gt:g}",
    "less_than_equal": "{le:g} or less",
    "less_than": "less than {lt:g}",
    "literal_error": "{expected}",
}
"""What to give, by pydantic's name of what is wrong."""


def describe(error: ValidationError, model: type[Config]) -> str:
    """The first problem of `error`, found while `model` was parsed."""
    first = error.errors()[0]
    keys, beside = locate(error, model)
    dotted = ".".join(keys)
    known = first.get("ctx", {})
    match first["type"]:
        case "extra_forbidden":
            parent = ".".join(keys[:-1])
            near = difflib.get_close_matches(keys[-1], beside, n=1, cutoff=0.5)
            guess = ".".join([*keys[:-1], *near])
            known_by = parent if [*first["loc"][:-1]] == keys[:-1] else keys[0]  # `coterie settings` writes kinds in brackets
            remedy = f"did you mean {guess}?" if near else f"`{f'coterie settings {known_by}'.strip()}` lists them"
            return f"{dotted} is not a setting{_of_kind(first['loc'], parent, beside)}; {remedy}"
        case "missing":
            return f"{dotted} is missing" + (f"; `coterie settings {keys[0]}` says what it is" if len(keys) > 1 else "")
        case "union_tag_invalid":
            return f"{dotted}.kind: {known.get('tag')} is not one of {known.get('expected_tags')}"
        case "union_tag_not_found":
            return f"{dotted}.kind is missing"
        case "value_error":
            said = first["msg"].removeprefix("Value error, ")
            return f"{dotted}: {said}" if dotted else said
        case "model_attributes_type" | "model_type" | "dict_type":
            return f"{dotted} holds several settings and is none itself; `coterie settings {keys[0]}` lists them"
        case "tuple_type":
            example = json.dumps([first["input"]]) if isinstance(first["input"], str) else '["A", "B"]'
            return f"{dotted}: give a list, for example {dotted}={example}, not {first['input']!r}"
        case kind if kind in _WANTED:
            return f"{dotted}: give {_WANTED[kind].format(**known)}, not {first['input']!r}"
        case _:
            return f"{dotted}: {first['msg'][0].lower()}{first['msg'][1:]}, not {first['input']!r}"


def _of_kind(loc: Sequence[Any], parent: str, beside: Collection[str]) -> str:
    """Which kind of a table was looked in, where its settings depend on it: pydantic names it before the last key."""
    return f" of {parent}.kind = {loc[-2]}" if "kind" in beside and len(loc) > 1 and str(loc[-2]) != parent else ""


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
