"""The project's README says what the records say."""

import json
import shutil
from pathlib import Path

import pytest

from coterie.report.readme import fill
from coterie.types import CoterieError

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_its_figures_are_those_of_the_records():
    """Breaks when a figure is typed, or a record changes and the README does not (make readmes)."""
    assert fill(README, ROOT) == README
    assert README.count("<!-- of ") + README.count("<!-- bench ") == README.count("<!-- end -->")


def test_an_edited_record_changes_the_page(tmp_path):
    for part in ("recipes", "bench/results"):
        shutil.copytree(ROOT / part, tmp_path / part)
    record = tmp_path / "recipes" / "talk-to-solve" / "results" / "pocket" / "chat-seed17.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"score": 0.123}))
    speed = tmp_path / "bench" / "results" / "step-h200.json"
    speed.write_text(json.dumps(json.loads(speed.read_text()) | {"seconds_per_step": 9.875}))
    changed = fill(README, tmp_path)
    assert "0.123" in changed
    assert ">9.88<!-- end --> s a training step" in changed
    assert fill(changed, ROOT) == README


def test_a_comparison_that_is_none_is_an_error():
    with pytest.raises(CoterieError, match="does not compare off with chat"):
        fill("<!-- of talk-to-solve/pocket: off chat -->?<!-- end -->", ROOT)
