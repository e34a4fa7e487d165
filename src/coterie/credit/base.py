"""What a credit rule is: a pure function that decides whose reward pays which message."""

from collections.abc import Callable

from coterie.types import Group

CreditRule = Callable[[Group], list[list[float]]]
"""`rule(group)[e][m]` is the advantage of message `m` of `group.episodes[e]`, in reward units; 0.0 exactly means "do not train"."""
