"""Splits of the spread and pass@k, as rows and as shown."""

import json
from io import StringIO

import pytest
from rich.console import Console

from coterie.report.tasks import pass_rows, pass_table, variance_rows
from coterie.types import CoterieError

OFF = {17: {"a": [0.0, 1.0], "b": [0.0, 0.0]}, 18: {"a": [1.0, 0.0], "b": [0.0, 0.0]}, 19: {"a": [0.0, 0.0], "b": [0.0, 1.0]}}
CHAT = {17: {"a": [1.0, 1.0], "b": [0.0, 1.0]}, 18: {"a": [1.0, 1.0], "b": [1.0, 1.0]}, 20: {"a": [1.0, None], "b": [1.0, 1.0]}}


def test_arms_then_differences_of_the_seeds_that_both_have():
    rows = variance_rows({"off": OFF, "chat": CHAT}, "off")
    assert [row["of"] for row in rows] == ["off", "chat", "chat − off"]
    assert [row["components"] and (row["components"]["seeds"], row["components"]["tasks"]) for row in rows] == [
        (3, 2),
        None,
        (2, 2),
    ]
    assert "at least 2 seeds that were graded on the same 2 tasks" in rows[1]["sentence"]  # one of its two tasks has a hole
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_tasks_that_are_left_out_are_said():
    more = {seed: of | {"c": [1.0, 0.0]} for seed, of in CHAT.items()}
    (row,) = variance_rows({"chat": more}, "off")
    assert row["left_out"] == 1
    assert "1 tasks are left out" in row["sentence"]


def test_one_seed_has_nothing_to_split():
    (row,) = variance_rows({"off": {17: OFF[17]}}, "off")
    assert (row["components"], "at least 2 seeds" in row["sentence"]) == (None, True)


def test_pass_at_k_over_seeds_by_hand():
    """Each seed of `off` has one task with one of two answers right, and one with none: pass@2 is 1/2, pass^2 is 0."""
    off, chat = pass_rows({"off": OFF, "chat": CHAT}, 2)
    assert off["pass_1"]["mean"] == pytest.approx((0.25 + 0.25 + 0.25) / 3)
    assert off["pass_at_k"]["mean"] == pytest.approx(0.5)
    assert off["pass_hat_k"] == {"mean": 0.0, "interval": (0.0, 0.0)}
    assert chat["pass_hat_k"]["mean"] == pytest.approx((0.5 + 1 + 1) / 3)
    assert (chat["seeds"], chat["left_out"]) == (3, 1)
    with pytest.raises(CoterieError, match="which are 2"):
        pass_rows({"off": OFF}, 3)


def test_a_table_of_one_seed_has_no_interval():
    console = Console(width=80, record=True, file=StringIO())
    console.print(pass_table(pass_rows({"off": {17: OFF[17]}}, 1)))
    text = console.export_text()
    assert "0.250" in text
    assert "to" not in text.split()
    assert "pass^" not in text
