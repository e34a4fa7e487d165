"""Files that survive."""

import errno
import json

import pytest

from coterie import records
from coterie.types import CoterieError


def test_a_full_disk_is_one_sentence_and_the_old_file_stays(tmp_path, monkeypatch):
    path = tmp_path / "result.json"
    records.write_json(path, {"a": 1})

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", full)
    with pytest.raises(CoterieError, match=r"the disk has no room left; free some and go on with --resume"):
        records.write_json(path, {"a": 2})
    assert records.read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["result.json"]


def test_a_folder_that_may_not_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CoterieError, match=r"cannot be written .* choose another folder with --out"):
        records.write_json(tmp_path / "file" / "result.json", {})


def test_lines_until_the_torn_one(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert records.read_lines(path) == []
    assert records.last_line(path) is None
    records.append_lines(path, [{"step": 1}, {"step": 2, "text": "a\u2028b"}])
    with open(path, "a") as file:
        file.write('{"step": 3, "re')
    assert [r["step"] for r in records.read_lines(path)] == [1, 2]
    assert records.last_line(path) == {"step": 2, "text": "a\u2028b"}
    records.keep_until(path, 1)
    assert path.read_text() == json.dumps({"step": 1}) + "\n"


def test_nan_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        records.write_json(tmp_path / "a.json", {"score": float("nan")})
