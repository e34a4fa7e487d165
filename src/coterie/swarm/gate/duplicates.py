"""Whether completions were seen before: from the same node a duplicate, from another one a copycat.

Two fingerprints, both bound to the question (two references can lead to one question; in reasoning_gym, seed 1 index 3 is seed 4
index 0). The group's: all its completions in any order, up to case and spaces. Each long completion's: its letters and digits only,
so that punctuation, spacing, case, Unicode form or invisible characters do not make it another; more than half of these seen before
make a group copied (the copycat check of grail compares hashes of completions likewise). Short completions count only as a whole
group, because honest nodes write the same "7"; where two of them write the same eight, the second teaches nothing new.

Known failures: one changed word in each completion passes; so a copy is detected and not prevented, and the reward, which is graded
here, is what a copied text is worth anyhow. Whoever comes first is taken for the author, so a copycat does not lose reputation: it
may be the author whose envelope took longer.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from coterie.swarm.gate.words import Reason
from coterie.swarm.words import NodeId

LONG = 32
"""Letters and digits from which on a completion is one that two nodes do not write by chance."""

_OTHER = re.compile(r"[\W_]+")
_OTHER_ASCII = bytes(code for code in range(128) if not chr(code).isalnum())


@dataclass(frozen=True, slots=True)
class Fingerprints:
    group: bytes
    long: tuple[bytes, ...]
    """Of the distinct long completions."""

    @property
    def all(self) -> tuple[bytes, ...]:
        return (self.group, *self.long)


def fingerprints(question: str, completions: Sequence[str]) -> Fingerprints:
    plain = [_folded(text) for text in completions]
    asked = _digest(b"question", " ".join(_folded(question).split()))
    bare = {letters for text in plain if len(letters := _letters(text)) >= LONG}
    whole = "\0".join(sorted(" ".join(text.split()) for text in plain))
    return Fingerprints(_digest(asked + b"group", whole), tuple(sorted(_digest(asked, letters) for letters in bare)))


def repeated(prints: Fingerprints, authors: Mapping[bytes, NodeId], node: NodeId) -> Reason | None:
    """`authors` says who sent which fingerprint first, for those that were seen."""
    copied = [authors[digest] for digest in prints.long if digest in authors]
    if prints.group in authors:
        copied.append(authors[prints.group])
    elif 2 * len(copied) <= len(prints.long):
        return None
    return Reason.DUPLICATE if all(author == node for author in copied) else Reason.COPYCAT


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _letters(text: str) -> str:
    return text.encode().translate(None, _OTHER_ASCII).decode() if text.isascii() else _OTHER.sub("", text)


def _digest(key: bytes, text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16, key=key).digest()
