"""The spool directory: what is half written, foreign or away."""

import os
import shutil

import pytest

from coterie.swarm.envelope import genuine
from coterie.swarm.exchange import folder as module
from coterie.swarm.exchange.folder import FolderExchange
from coterie.swarm.exchange.sqlite import SqliteExchange
from coterie.types import CoterieError
from tests.swarm.nodes import ANN, EVE, received

A, B = "a" * 64, "b" * 64


@pytest.fixture
def pair(tmp_path):
    made = [FolderExchange(tmp_path / "shared", SqliteExchange(tmp_path / f"{n}.sqlite", max_body=10_000)) for n in "ab"]
    yield made
    for exchange in made:
        exchange.close()


def seqs(exchange):
    return [(one.node, one.seq) for one in exchange.draw(0, 100_000)]


def test_the_file_is_where_the_docstring_says(pair, tmp_path):
    pair[0].publish(A, 12, b"body")
    assert [path.relative_to(tmp_path) for path in (tmp_path / "shared").rglob("*") if path.is_file()] == [
        (tmp_path / "shared" / A / "0000000000000000012.envelope").relative_to(tmp_path)
    ]
    assert (tmp_path / "shared" / A / "0000000000000000012.envelope").read_bytes() == b"body"


def test_what_is_half_written_or_foreign_is_not_read(pair, tmp_path):
    a, b = pair
    a.publish(A, 0, b"whole")
    home = tmp_path / "shared" / A
    (home / ".1.77.partial").write_bytes(b"hal")
    (home / "notes.txt").write_bytes(b"x")
    (home / "2.envelope").write_bytes(b"x")
    (home / "0000000000000000003.envelope").mkdir()
    (home / "0000000000000000004.envelope").symlink_to("/etc/hostname")
    (home / "0000000000000000005.envelope").write_bytes(bytes(10_001))
    (home / "0000000000000000006.envelope").write_bytes(b"")
    (tmp_path / "shared" / "Not A Node").mkdir()
    (tmp_path / "shared" / "file").write_bytes(b"x")
    assert seqs(b) == seqs(b) == [(A, 0)]
    assert "2 files skipped" in b.status()


def test_killed_between_write_and_rename_it_shows_nothing_then_the_whole(tmp_path, monkeypatch):
    """The store has it, so the next start writes the file."""
    a = FolderExchange(tmp_path / "shared", tmp_path / "a.sqlite")
    b = FolderExchange(tmp_path / "shared", tmp_path / "b.sqlite")

    def die(*_):
        raise KeyboardInterrupt

    a.publish(A, 0, b"zero")
    with monkeypatch.context() as patch:
        patch.setattr(module.Path, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            a.publish(A, 1, b"one")
    assert seqs(b) == [(A, 0)]
    a.store.close()
    FolderExchange(tmp_path / "shared", tmp_path / "a.sqlite").draw(0, 1)
    assert seqs(b) == [(A, 0), (A, 1)]


def test_what_is_published_while_the_folder_is_away_is_written_later(pair, tmp_path):
    a, b = pair
    a.publish(A, 0, b"x")
    (tmp_path / "shared").rename(tmp_path / "away")
    a.publish(A, 1, b"y")
    a.publish(A, 2, b"z")
    assert seqs(a) == [(A, 0), (A, 1), (A, 2)]
    assert "waiting for" in a.status()
    assert seqs(b) == []
    assert not (tmp_path / "shared").exists()  # where a disk is not mounted, nothing is made in its place
    (tmp_path / "away").rename(tmp_path / "shared")
    a.draw(0, 1)
    assert sorted(seqs(b)) == [(A, 0), (A, 1), (A, 2)]
    assert "waiting for" not in a.status()


def test_a_node_prunes_its_own_files_only_and_readers_keep_what_they_have(tmp_path):
    a = FolderExchange(tmp_path / "shared", SqliteExchange(tmp_path / "a.sqlite", max_body=10_000, keep_bytes=200_000))
    b = FolderExchange(tmp_path / "shared", tmp_path / "b.sqlite")
    b.publish(B, 0, b"x")
    old = tmp_path / "shared" / A / ".9.1.partial"
    old.parent.mkdir()
    old.write_bytes(b"left by a killed process")
    os.utime(old, (1, 1))
    for seq in range(64):
        a.publish(A, seq, bytes(10_000))
        b.draw(0, 1)
    assert sorted(path.name for path in (tmp_path / "shared" / A).iterdir()) == [f"{seq:019d}.envelope" for seq in range(44, 64)]
    assert (tmp_path / "shared" / B / f"{0:019d}.envelope").exists()
    assert len(seqs(b)) == 65


def test_pruned_files_are_not_written_again_by_the_next_start(tmp_path):
    a = FolderExchange(tmp_path / "shared", tmp_path / "a.sqlite")
    for seq in range(5):
        a.publish(A, seq, b"x")
    a.close()
    (tmp_path / "shared" / A / f"{0:019d}.envelope").unlink()
    FolderExchange(tmp_path / "shared", tmp_path / "a.sqlite").draw(0, 1)
    assert len(list((tmp_path / "shared" / A).iterdir())) == 4


def test_one_draw_reads_a_bounded_number_of_files_nodes_by_turns(pair, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "LOOK", 4)
    a, b = pair
    for seq in range(6):
        a.publish(A, seq, b"x")
    a.publish(B, 0, b"y")
    assert sorted(seqs(b)) == [(A, 0), (A, 1), (A, 2), (B, 0)]
    assert len(seqs(b)) == 7


def test_readers_with_one_store_share_numbers(pair, tmp_path):
    a, b = pair
    a.publish(A, 0, b"x")
    a.publish(B, 0, b"x")
    same = FolderExchange(tmp_path / "shared", tmp_path / "b.sqlite")
    assert same.draw(0, 9) == b.draw(0, 9)


def test_a_looked_at_file_is_forgotten_when_it_goes(pair, tmp_path):
    """Else the memory of a reader would grow with everything that ever was."""
    a, b = pair
    a.publish(A, 0, b"x")
    assert seqs(b) == [(A, 0)]
    shutil.rmtree(tmp_path / "shared" / A)
    a.publish(A, 1, b"x")
    b.draw(0, 1)
    assert b._seen == {A: {1}}


def test_a_folder_that_cannot_be_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    for path in (tmp_path / "file", tmp_path / "no" / "such"):
        with pytest.raises(CoterieError, match=f"cannot use {path}"):
            FolderExchange(path, tmp_path / "x.sqlite")


def test_a_file_that_is_not_what_it_claims_leaves_no_trace(tmp_path):
    """One of a stranger in A's name, far ahead. Breaks when the store is told before `accept` is asked."""
    node = ANN.node
    reader = FolderExchange(tmp_path / "shared", tmp_path / "b.sqlite", accept=genuine)
    writer = FolderExchange(tmp_path / "shared", tmp_path / "a.sqlite")
    (tmp_path / "shared" / node).mkdir()
    (tmp_path / "shared" / node / f"{2**62:019d}.envelope").write_bytes(received(EVE, 0).body)
    assert reader.draw(0, 9) == []
    assert (reader.peers(), reader.store.newest_seq(node), reader.store.held()) == ([], -1, {})
    writer.publish(node, 0, received(ANN, 0).body)
    assert [(one.node, one.seq) for one in reader.draw(0, 9)] == [(node, 0)]
    assert "1 files skipped" in reader.status()


def test_a_file_of_a_stranger_in_ones_own_name_does_not_keep_back_what_waited(tmp_path):
    """Breaks when the newest file in the node's folder is taken for its own: what was published while the disk was away would
    never be written."""
    a = FolderExchange(tmp_path / "shared", tmp_path / "a.sqlite")
    (tmp_path / "shared").rename(tmp_path / "away")
    a.publish(A, 0, b"zero")
    (tmp_path / "away").rename(tmp_path / "shared")
    (tmp_path / "shared" / A).mkdir()
    (tmp_path / "shared" / A / f"{2**62:019d}.envelope").write_bytes(b"of a stranger")
    a.publish(A, 1, b"one")
    assert (tmp_path / "shared" / A / f"{0:019d}.envelope").read_bytes() == b"zero"
    assert a.last_seq(A) == 1
