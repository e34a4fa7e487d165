"""Envelopes as bytes: one line of canonical JSON, a newline, and the ed25519 signature of that line in hex.

What comes in is anybody's. The released SAPO node unpacked its peers' payloads first, looked at their shape later or never, and
crashed in training on them ("expected sequence of length 2 at dim 1", "Unsupported type"; rl-swarm issues 385, 407, 474, pull 481).
Here size is checked before parsing, and then all that can be known from the bytes alone: types, lengths, ranges, UTF-8, no key that
is not ours. An `answer` or a `reward` has no place to stand: those are made by the receiver.

Canonical means: keys sorted, no spaces, UTF-8 without needless escapes, numbers as Python writes them. A line that is not canonical
is refused, so two parsers cannot read one line in two ways (a key that stands twice, say), and encoding what was decoded gives the
same bytes.
"""

import json
import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, FailFast, Field, StringConstraints, ValidationError
from pydantic_core import from_json

from coterie.swarm.identity import SIGNATURE_BYTES, Identity, verify
from coterie.swarm.words import Envelope, NodeId, Rollouts, TaskRef

MAX_BYTES = 256 * 1024
"""Of one envelope with its signature, at its sender, on every exchange and at the gate. Eight completions of 1,000 tokens are about
40 KB."""
MAX_COMPLETIONS = 64
FORMAT = "coterie-rollouts-1"
"""Signed with the rest, so that no signature made for something else can pass for one of an envelope."""

_SIGNATURE = re.compile(rb"[0-9a-f]{%d}" % (2 * SIGNATURE_BYTES))
_COUNT = 2**53 - 1
"""Integers up to here are the same in every JSON library (RFC 8259, section 6)."""


class Malformed(Exception):
    """Why bytes are no envelope, or why an envelope may not be sent: the only exception of this module."""

    def __init__(self, reason: str):
        super().__init__(reason)
        self.reason = reason


def _printable(text: str) -> str:
    # These are shown by `coterie swarm status`: no escape sequences, line breaks or marks that turn the direction of writing.
    if not text.isprintable():
        raise ValueError("holds characters that cannot be printed")
    return text


_Name = Annotated[str, StringConstraints(min_length=1, max_length=128), AfterValidator(_printable)]
_Text = Annotated[str, StringConstraints(max_length=MAX_BYTES)]
_Count = Annotated[int, Field(ge=0, le=_COUNT)]


class _Strict(BaseModel):
    # Unknown keys are left out here, and the line is then not canonical. As errors, 20,000 of them would cost 35 ms and not 3.
    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)


class _TaskRef(_Strict):
    source: _Name
    version: _Name
    config: Annotated[str, StringConstraints(min_length=2, max_length=4096)]
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    index: _Count


class _Rollouts(_Strict):
    ref: _TaskRef
    question: Annotated[_Text, Field(min_length=1)]
    completions: Annotated[list[_Text], FailFast(), Field(min_length=1, max_length=MAX_COMPLETIONS)]
    round: _Count
    policy: _Name


class _Envelope(_Strict):
    format: Annotated[str, Field(pattern=f"^{FORMAT}$")]
    swarm: _Name
    node: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    seq: _Count
    time: Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)]
    rollouts: _Rollouts


def encode(envelope: Envelope, key: Identity, max_bytes: int = MAX_BYTES) -> bytes:
    """The signed bytes of an envelope of this key's node. Raises Malformed for one that receivers would refuse."""
    if envelope.node != key.node:
        raise Malformed("node: is not the id of the key that signs")
    rollouts = envelope.rollouts
    wire = {
        "format": FORMAT,
        "swarm": envelope.swarm,
        "node": envelope.node,
        "seq": envelope.seq,
        "time": envelope.time,
        "rollouts": {
            "ref": {name: getattr(rollouts.ref, name) for name in ("source", "version", "config", "seed", "index")},
            "question": rollouts.question,
            "completions": list(rollouts.completions),
            "round": rollouts.round,
            "policy": rollouts.policy,
        },
    }
    try:
        signed = _canonical(_Envelope.model_validate(wire))
    except ValidationError as error:
        raise Malformed(_first(error)) from None
    body = signed + b"\n" + key.sign(signed).hex().encode()
    if len(body) > max_bytes:
        raise Malformed(f"{len(body)} bytes are more than the limit of {max_bytes}")
    return body


def decode(body: bytes, max_bytes: int = MAX_BYTES) -> tuple[Envelope, bytes, bytes]:
    """The envelope, the bytes that were signed and the 64 bytes of the signature, which is not verified here.

    Raises Malformed, and nothing else, whatever the bytes are.
    """
    if len(body) > max_bytes:
        raise Malformed(f"{len(body)} bytes are more than the limit of {max_bytes}")
    signed, newline, signature = body.rpartition(b"\n")
    if not newline or not _SIGNATURE.fullmatch(signature):
        raise Malformed("does not end with a line break and a signature of 128 hex digits")
    try:
        wire = _Envelope.model_validate(from_json(signed, allow_inf_nan=False))
    except ValidationError as error:
        raise Malformed(_first(error)) from None
    except ValueError as error:  # from the parser: no UTF-8, no JSON, nested too deeply, half of a surrogate pair
        raise Malformed(str(error)[:300]) from None
    if _canonical(wire) != signed:
        raise Malformed("has keys that have no place in it, or is not canonical (sorted keys, each once, no spaces)")
    rollouts = wire.rollouts
    ref = TaskRef(rollouts.ref.source, rollouts.ref.version, rollouts.ref.config, rollouts.ref.seed, rollouts.ref.index)
    shared = Rollouts(ref, rollouts.question, tuple(rollouts.completions), rollouts.round, rollouts.policy)
    return Envelope(wire.swarm, wire.node, wire.seq, wire.time, shared), signed, bytes.fromhex(signature.decode())


def genuine(node: NodeId, seq: int, body: bytes, swarm: str | None = None) -> bool:
    """Whether these are the signed bytes of this node's envelope of this number, and for this swarm if one is named: what an
    exchange may ask (`accept`) before it keeps what the network brings, so that nobody takes another's place. About
    0.2 ms. Says nothing of what is in it."""
    try:
        envelope, signed, signature = decode(body)
    except Malformed:
        return False
    if swarm is not None and envelope.swarm != swarm:
        return False
    return (envelope.node, envelope.seq) == (node, seq) and verify(node, signed, signature)


def _canonical(wire: _Envelope) -> bytes:
    return json.dumps(wire.model_dump(), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])[:80]
    return f"{place!r}: {first['msg']}"[:300] if place else first["msg"][:300]
