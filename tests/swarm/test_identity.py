"""A key that is made once, read ever after, and never lost or shown."""

import os
import threading

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from coterie.swarm.identity import Identity, load_identity, verify
from coterie.types import CoterieError


def test_signatures_are_ed25519():
    """RFC 8032, section 7.1, test 1: the empty message."""
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    key = Identity(Ed25519PrivateKey.from_private_bytes(secret))
    assert key.node == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = key.sign(b"")
    assert signature.hex() == (
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b"
    )
    assert verify(key.node, b"", signature)
    assert not verify(key.node, b"x", signature)
    assert not verify("0" * 64, b"", signature)


@pytest.mark.parametrize("node", ["", "ab", "x" * 64, "D75A980182B10AB7D54BFED3C964073A0EE172F3DAA62325AF021A68F707511A", "f" * 64])
@pytest.mark.parametrize("signature", [b"", b"\0" * 63, b"\0" * 64, b"\xff" * 64])
def test_what_is_no_key_or_no_signature_verifies_nothing(node, signature):
    """Upper case is no id, or one key would stand under many names."""
    assert verify(node, b"", signature) is False


def test_the_file_is_made_once_and_for_its_owner_only(tmp_path):
    path = tmp_path / "deep" / "node.pem"
    made = load_identity(path)
    before = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_identity(path).node == made.node
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path], "a temporary file was left"
    loaded = serialization.load_pem_private_key(before, None)
    assert loaded.public_key().public_bytes_raw().hex() == made.node
    assert repr(made) == f"Identity({made.node})"


def test_nodes_that_start_at_once_agree_on_one_key(tmp_path):
    """Breaks when the file is renamed into place, or written in place: then the last one wins, or half a key is read."""
    found, start = [], threading.Barrier(8)

    def begin():
        start.wait()
        found.append(load_identity(tmp_path / "node.pem").node)

    threads = [threading.Thread(target=begin) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def _pem(key) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())


def test_a_damaged_file_is_named_and_kept(tmp_path):
    path = tmp_path / "node.pem"
    whole = _pem(Ed25519PrivateKey.generate())
    locked = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"word")
    )
    for content in (b"", whole[:60], b"\xff" * 100, _pem(generate_private_key(SECP256R1())), locked):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(CoterieError, match=r"node\.pem: holds no ed25519 key; put a copy back"):
            load_identity(path)
        assert path.read_bytes() == content


@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
def test_a_key_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "node.pem"
    load_identity(path)
    path.chmod(0o640)
    with pytest.raises(CoterieError, match=r"node\.pem: others may read this node's key; run `chmod 600`"):
        load_identity(path)


def test_a_place_that_cannot_hold_a_file_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CoterieError, match=r"node\.pem: the node's key cannot be read or made there"):
        load_identity(tmp_path / "file" / "node.pem")
    with pytest.raises(CoterieError, match="cannot be read or made there"):
        load_identity(tmp_path)


def test_a_missing_library_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cryptography.exceptions", None)
    with pytest.raises(CoterieError, match=r"pip install 'coterie\[swarm\]'"):
        load_identity(tmp_path / "node.pem")
    assert not (tmp_path / "node.pem").exists()
