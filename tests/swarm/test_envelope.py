"""Envelopes come back as they were, and no bytes whatever do more than raise Malformed."""

import contextlib
import json
import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from coterie.swarm.envelope import MAX_BYTES, MAX_COMPLETIONS, Malformed, decode, encode, genuine
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.swarm.gate import Limits
from coterie.swarm.identity import verify
from coterie.swarm.words import Envelope, Rollouts, TaskRef
from coterie.types import CoterieError
from tests.swarm.nodes import ANN, BOB, envelope, rollouts

SIGNED = (
    '{"format":"coterie-rollouts-1","node":"' + ANN.node + '","rollouts":{"completions":["7","\\u0000 \\"é\\"\\n漢"],'
    '"policy":"pocket@3","question":"What?","ref":{"config":"{}","index":5,"seed":0,"source":"sums","version":"1"},"round":3},'
    '"seq":2,"swarm":"test","time":1700000000.25}'
).encode()
"""Written by hand: what another implementation must write."""

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
name = st.text(st.characters(categories=["L", "N", "P"]), min_size=1, max_size=20)
count = st.integers(0, 2**53 - 1)
refs = st.builds(TaskRef, source=name, version=name, config=st.just("{}"), seed=st.integers(0, 2**63 - 1), index=count)
shared = st.builds(
    Rollouts,
    ref=refs,
    question=text.filter(bool),
    completions=st.lists(text, min_size=1, max_size=8).map(tuple),
    round=count,
    policy=name,
)
envelopes = st.builds(
    Envelope, swarm=name, node=st.just(ANN.node), seq=count, time=st.floats(0, 1e11, exclude_max=True), rollouts=shared
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=4) | st.dictionaries(st.text(max_size=5), v, max_size=3), max_leaves=8
)


def line(wire) -> bytes:
    """A wire object as canonical JSON, well signed, without this project's encoder."""
    signed = json.dumps(wire, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    return with_signature(signed)


def with_signature(signed: bytes) -> bytes:
    return signed + b"\n" + ANN.sign(signed).hex().encode()


def changed(path: str, value) -> bytes:
    wire = json.loads(SIGNED)
    *parents, last = path.split(".")
    place = wire
    for key in parents:
        place = place[key]
    place[last] = value
    return line(wire)


def test_the_bytes_are_those_written_by_hand():
    made = envelope(ANN, 2, rollouts(5, ("7", '\0 "é"\n漢'), question="What?"), time=1700000000.25)
    body = encode(made, ANN)
    assert body == SIGNED + b"\n" + ANN.sign(SIGNED).hex().encode()
    assert decode(body) == (made, SIGNED, ANN.sign(SIGNED))


@given(envelopes)
def test_what_is_encoded_comes_back(made):
    found, signed, signature = decode(encode(made, ANN))
    assert found == made
    assert verify(ANN.node, signed, signature)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(with_signature))
@example(b"")
@example(b"\n")
@example(SIGNED)
@example(with_signature(b"[" * 200_000))
@example(with_signature(b'{"a":' * 40_000 + b"1" + b"}" * 40_000))
@example(with_signature(b"1" * 10_000))
def test_no_bytes_raise_anything_but_malformed(body):
    with pytest.raises(Malformed):
        decode(body)


@settings(max_examples=200)
@given(envelopes, st.data())
def test_mutated_envelopes_are_malformed_or_envelopes_that_encode_to_the_same_bytes(made, data):
    body = bytearray(encode(made, ANN))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3) | st.sampled_from([b'"', b"{", b"\\"]))
    with contextlib.suppress(Malformed):
        found, signed, signature = decode(bytes(body))
        assert not verify(ANN.node, signed, signature) or found == made
        if found.node == ANN.node:
            assert encode(found, ANN).rpartition(b"\n")[0] == signed


@settings(max_examples=200)
@given(st.data(), values)
def test_any_value_at_any_place_is_malformed_or_an_envelope_that_encodes_to_the_same_bytes(data, value):
    paths = ["format", "node", "rollouts", "seq", "swarm", "time", "more", "rollouts.more", "rollouts.ref.more", "rollouts.ref"]
    paths += [f"rollouts.{key}" for key in ("completions", "policy", "question", "round")]
    paths += [f"rollouts.ref.{key}" for key in ("config", "index", "seed", "source", "version")]
    body = changed(data.draw(st.sampled_from(paths)), value)
    with contextlib.suppress(Malformed):
        assert encode(decode(body)[0], ANN) == body


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("answer", "7", "has keys that have no place"),
        ("rollouts.answer", "7", "has keys that have no place"),
        ("rollouts.rewards", [1.0, 1.0], "has keys that have no place"),
        ("rollouts.ref.answer", "7", "has keys that have no place"),
        ("format", "coterie-rollouts-2", "'format'"),
        ("format", "coterie-rollouts-1\n", "'format'"),
        ("node", ANN.node.upper(), "'node'"),
        ("node", ANN.node + "\n", "'node'"),
        ("seq", -1, "'seq'"),
        ("seq", 2**53, "'seq'"),
        ("seq", True, "'seq'"),
        ("seq", 1.0, "'seq'"),
        ("seq", "1", "'seq'"),
        ("time", -0.5, "'time'"),
        ("time", 1e11, "'time'"),
        ("time", math.nan, "expected value"),
        ("time", math.inf, "expected value"),
        ("time", 1700000000, "not canonical"),
        ("swarm", "", "'swarm'"),
        ("swarm", "a\x1b[31m", "cannot be printed"),
        ("swarm", "a" * 129, "'swarm'"),
        ("rollouts.policy", "‮evil", "cannot be printed"),
        ("rollouts.completions", [], "'rollouts.completions'"),
        ("rollouts.completions", ["7"] * (MAX_COMPLETIONS + 1), "'rollouts.completions'"),
        ("rollouts.completions", ["7", None], "'rollouts.completions.1'"),
        ("rollouts.completions", "78", "'rollouts.completions'"),
        ("rollouts.completions", ["\ud800", "7"], "invalid unicode|surrogate"),
        ("rollouts.question", "", "'rollouts.question'"),
        ("rollouts.ref.seed", 2**63, "'rollouts.ref.seed'"),
        ("rollouts.ref.seed", -1, "'rollouts.ref.seed'"),
        ("rollouts.ref.config", "x" * 4097, "'rollouts.ref.config'"),
        ("rollouts.ref.config", {}, "'rollouts.ref.config'"),
        ("rollouts.ref", None, "'rollouts.ref'"),
    ],
)
def test_what_the_schema_refuses(path, value, reason):
    with pytest.raises(Malformed, match=reason):
        decode(changed(path, value))


@pytest.mark.parametrize(
    "signed",
    [
        SIGNED.replace(b'"seq":2', b'"seq": 2'),
        SIGNED.replace(b'"seq":2', b'"seq":9,"seq":2'),
        SIGNED.replace("é".encode(), b"\\u00e9"),
        SIGNED.replace(b'"7"', b'"\\ud800"'),
        SIGNED.replace(b'"7"', b'"\xff"'),
        SIGNED.replace(b'"7"', b'"\xed\xa0\x80"'),
        SIGNED.replace(b"1700000000.25", b"1.70000000025e9"),
        SIGNED.replace(b"1700000000.25", b"1e999"),
        b"\xef\xbb\xbf" + SIGNED,
        SIGNED + b"\n",
        SIGNED[:-1],
    ],
)
def test_other_spellings_of_the_same_are_refused(signed):
    """Else two parsers could read one signed line in two ways."""
    decode(with_signature(SIGNED))
    assert signed != SIGNED
    with pytest.raises(Malformed):
        decode(with_signature(signed))


def test_signatures_have_one_spelling():
    signature = ANN.sign(SIGNED).hex().encode()
    for other in (signature.upper(), signature[:-1], signature + b"\n", b"", signature[:-1] + b"g"):
        assert other != signature
        with pytest.raises(Malformed, match="128 hex digits"):
            decode(SIGNED + b"\n" + other)


def test_size_is_checked_before_anything_is_parsed(monkeypatch):
    monkeypatch.setattr("coterie.swarm.envelope.from_json", lambda *_, **__: pytest.fail("was parsed"))
    with pytest.raises(Malformed, match=f"{MAX_BYTES + 1} bytes are more than the limit of {MAX_BYTES}"):
        decode(b"x" * (MAX_BYTES + 1))
    body = encode(envelope(), ANN)
    with pytest.raises(Malformed, match="more than the limit"):
        decode(body, max_bytes=len(body) - 1)


def test_what_receivers_would_refuse_is_not_sent():
    with pytest.raises(Malformed, match="not the id of the key"):
        encode(envelope(ANN), BOB)
    half = "half of a pair: \ud800"  # is no character, and UTF-8 has no bytes for it
    ref = rollouts().ref
    in_rollouts = [{"completions": (half, "7")}, {"question": half}, {"policy": half}, {"ref": replace(ref, source=half)}]
    in_rollouts += [{"ref": replace(ref, version=half)}, {"ref": replace(ref, config=half)}]
    for bad in [envelope(shared=rollouts(0, **change)) for change in in_rollouts] + [envelope(swarm=half)]:
        with pytest.raises(Malformed, match=r"unicode|cannot be printed"):
            encode(bad, ANN)
    with pytest.raises(Malformed, match="more than the limit"):
        encode(envelope(shared=rollouts(0, ("é" * 100_000, "é" * 100_000))), ANN)
    with pytest.raises(Malformed, match="'time'"):
        encode(envelope(time=math.nan), ANN)


def test_genuine_is_its_author_s_and_under_its_own_number():
    body = encode(envelope(ANN, 3), ANN)
    assert genuine(ANN.node, 3, body)
    assert not genuine(ANN.node, 4, body)
    assert not genuine(BOB.node, 3, body)
    assert not genuine(ANN.node, 3, body[:-1] + (b"0" if body[-1:] != b"0" else b"1"))
    assert not genuine(ANN.node, 3, b"rubbish")


def test_the_largest_envelope_goes_through_an_exchange_and_one_byte_more_through_neither(tmp_path):
    """One limit for all. Breaks when the exchange's is another: it would carry what every gate drops, or refuse what is valid."""
    empty = len(encode(envelope(shared=rollouts(0, ("", "7"))), ANN))
    exchange = SqliteExchange(tmp_path / "x.sqlite")
    body = encode(envelope(shared=rollouts(0, ("x" * (MAX_BYTES - empty), "7"))), ANN)
    assert len(body) == MAX_BYTES
    exchange.publish(ANN.node, 0, body)
    assert exchange.draw(0, 1)[0].body == body
    with pytest.raises(Malformed, match="more than the limit"):
        encode(envelope(shared=rollouts(0, ("x" * (MAX_BYTES - empty + 1), "7"))), ANN)
    with pytest.raises(CoterieError, match=f"{MAX_BYTES + 1} bytes is not between"):
        exchange.publish(ANN.node, 1, body + b"x")
    assert exchange.max_body == Limits().max_bytes
