"""Named random streams.

Everything random in coterie comes from a stream named by what it is for: `stream(seed, "task-order", epoch)`. A stream has no
state to save: the same seed and names give the same numbers, whatever was drawn before, in whichever process. That is what makes
a resumed run equal to one that never stopped, and lets two arms of one seed share their task order and sampling noise.
"""

import hashlib

import numpy as np


def _key(seed: int, names: tuple[str | int, ...]) -> int:
    text = "\x1f".join([str(int(seed)), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def stream(seed: int, *names: str | int) -> np.random.Generator:
    """A generator (Philox, counter-based) for one purpose."""
    return np.random.Generator(np.random.Philox(key=_key(seed, names)))


def torch_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for `torch.Generator.manual_seed`, for the same purpose-named streams."""
    return _key(seed, names) >> 65
