"""Text that has come apart: loops, and copies of what was read."""

import re
from collections.abc import Iterable

WORDS = 4
"""Loops are found by runs of so many words, as in seq-rep-4 (Welleck et al., arXiv:1908.04319)."""

FEWEST = 16
"""A shorter message is not called a loop: lists of facts ("Tom has 3 pens. Sue has 4 pens.") repeat a run or two."""

LOOPED = 0.5
"""The share of a message's runs that stood in it before. Half of them: the message says everything twice."""

COPIED_RUN, COPIED = 8, 0.8
"""A message copies when 80 % of its words lie in runs of eight words of what it read. Eight words in a row are quoted, not met by
chance; one sentence of its own in a longer message keeps it below the share."""

_STUCK = re.compile(r"(?=\S)(.{1,20}?)\1{9,}", re.DOTALL)
"""One piece ten times in a row; also for texts without spaces."""


def loops(text: str) -> bool:
    """Whether a text says one thing over and over."""
    if any(re.search(r"\w", found.group(1)) for found in _STUCK.finditer(text)):  # a rule of dashes is none
        return True
    words = text.casefold().split()
    runs = [tuple(words[i : i + WORDS]) for i in range(len(words) - WORDS + 1)]
    return len(words) >= FEWEST and 1 - len(set(runs)) / len(runs) >= LOOPED


def copies(text: str, sources: Iterable[str]) -> bool:
    """Whether a text is nothing but what stands in `sources`. A text shorter than a run never is."""
    words = _plain(text)
    known = {run for source in sources for run in _runs(_plain(source))}
    covered = {i + k for i, run in enumerate(_runs(words)) if run in known for k in range(COPIED_RUN)}
    return len(words) >= COPIED_RUN and len(covered) >= COPIED * len(words)


def _plain(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _runs(words: list[str]) -> list[tuple[str, ...]]:
    return [tuple(words[i : i + COPIED_RUN]) for i in range(len(words) - COPIED_RUN + 1)]
