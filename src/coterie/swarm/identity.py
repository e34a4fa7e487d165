"""Who a node is: an ed25519 key in a file, made at the first start; its public half in hex is the node's id.

No registrar and no login: a node that reaches nobody still has its identity (most complaints about rl-swarm are about services that
it needs to start). Each envelope is signed itself, since the authentication of a transport ends at its first hop.
"""

import contextlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any

from coterie.seeding import stream
from coterie.swarm.words import NodeId
from coterie.types import CoterieError

SIGNATURE_BYTES = 64
_NODE = re.compile("[0-9a-f]{64}")


def is_node_id(text: str) -> bool:
    """64 lower-case hex digits: each key has one spelling, or one node could stand under several names."""
    return _NODE.fullmatch(text) is not None


class Identity:
    """A private key and the id that belongs to it. `load_identity` makes them."""

    def __init__(self, key: Any):
        self._key = key
        self.node: NodeId = key.public_key().public_bytes_raw().hex()

    def sign(self, signed: bytes) -> bytes:
        """The 64 bytes of the ed25519 signature (RFC 8032)."""
        return self._key.sign(signed)

    def __repr__(self) -> str:
        return f"Identity({self.node})"  # never the private half, wherever this is printed


def identity_of(seed: int, *names: str | int) -> Identity:
    """The identity of a named stream, for experiments that must repeat. Everybody who knows the seed has the key."""
    ed25519, _, _ = _library()
    return Identity(ed25519.Ed25519PrivateKey.from_private_bytes(stream(seed, *names).bytes(32)))


def verify(node: NodeId, signed: bytes, signature: bytes) -> bool:
    """Whether `signature` is that node's signature of these bytes. False for anything that is no key or no signature."""
    ed25519, _, invalid = _library()
    if not is_node_id(node) or len(signature) != SIGNATURE_BYTES:
        return False
    try:
        ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(node)).verify(signature, signed)
    except (invalid, ValueError):
        return False
    return True


def load_identity(path: Path) -> Identity:
    """The identity in this file, which is made when there is none.

    The file (PEM, PKCS #8, mode 0600) appears whole or not at all and is never written again: it is written beside its place and
    hard-linked to it, which fails when somebody was faster, and then theirs is read. Two nodes must not run with copies of one
    file: they would count their envelopes from the same number, and receivers would drop one of each two as replayed.

    Raises:
        CoterieError: for a file that holds no ed25519 key, that others may read, or a folder that cannot be written.
    """
    _library()
    try:
        if not os.path.lexists(path):
            _create(path)
        return _read(path)
    except OSError as error:
        raise CoterieError(
            f"{path}: the node's key cannot be read or made there ({error.strerror}); choose a folder that you may write, on a "
            "disk with hard links"
        ) from error


def _read(path: Path) -> Identity:
    ed25519, serialization, _ = _library()
    if os.name == "posix" and path.stat().st_mode & 0o077:
        raise CoterieError(f"{path}: others may read this node's key; run `chmod 600` on it, and make a new one if anybody has")
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except Exception as error:  # the library raises several kinds, its own and TypeError, on a damaged or encrypted file
        if isinstance(error, OSError):
            raise
        key = None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise CoterieError(f"{path}: holds no ed25519 key; put a copy back, or move it away to start as a new node")
    return Identity(key)


def _create(path: Path) -> None:
    ed25519, serialization, _ = _library()
    pem = ed25519.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # made with mode 0600
    try:
        with open(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):  # another process made one meanwhile: that is the identity
            os.link(temporary, path)
    finally:
        os.unlink(temporary)


def _library() -> tuple[Any, Any, type[Exception]]:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise CoterieError("swarm: needs the package cryptography; run `pip install 'coterie[swarm]'`") from None
    return ed25519, serialization, InvalidSignature
