"""Errors that must not stop a node: counted, and the last one kept for people."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Trouble:
    def __init__(self) -> None:
        self.count = 0
        self.last: str | None = None

    def note(self, what: str) -> None:
        self.count += 1
        self.last = what[:500]

    def guard(self, doing: str, call: Callable[[], T]) -> T | None:
        """What `call` returns, or None when it raised: whatever a transport raises, the round goes on."""
        try:
            return call()
        except Exception as error:
            self.note(f"{doing}: {error or type(error).__name__}")
            return None
