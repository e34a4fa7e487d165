"""The figure's arithmetic, that it is drawn at the promised size, and that importing it does not import matplotlib."""

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.report.plots import BASELINE_COLOUR, colours_of, draw_results, learning_curves, mean_curve, smooth, spread


def size(path):
    head = path.read_bytes()[:24]
    return int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")


def test_smooth_is_a_trailing_mean_that_skips_gaps():
    curve = [(1, None), (2, 1.0), (3, 0.0), (4, None), (6, 2.0)]
    assert smooth(curve, 2) == [(2, 1.0), (3, 0.5), (4, 0.0), (6, 2.0)]
    assert smooth(curve, 1) == [(2, 1.0), (3, 0.0), (6, 2.0)]
    assert smooth([], 3) == []


def test_mean_curve_uses_the_steps_that_every_seed_has():
    assert mean_curve([[(1, 0.0), (2, 1.0), (3, 9.0)], [(1, 1.0), (2, 2.0)]]) == [(1, 0.5), (2, 1.5)]
    assert mean_curve([]) == []


def test_spread_by_hand():
    assert spread([0.5, 0.5], 0.2, 0, 1) == pytest.approx([0.4, 0.6])
    assert spread([0.9, 0.1], 0.2, 0, 1) == pytest.approx([0.9, 0.1])
    assert spread([1.0, 1.0], 0.2, 0, 1) == pytest.approx([0.8, 1.0])
    assert spread([], 0.2, 0, 1) == []


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_spread_keeps_gap_order_and_bounds(heights):
    placed = spread(heights, 0.1, 0, 1)
    ranked = sorted(range(len(heights)), key=lambda i: heights[i])
    assert all(placed[b] - placed[a] >= 0.1 - 1e-9 for a, b in pairwise(ranked))
    assert min(placed) >= 0
    assert max(placed) <= 1 + 1e-9


def test_colours_differ_and_the_baseline_is_grey():
    found = colours_of(["chat", "off", "debate"], "off")
    assert found["off"] == BASELINE_COLOUR
    assert len(set(found.values())) == 3


def test_a_results_file_becomes_a_figure(results, tmp_path):
    path = draw_results(results, tmp_path / "new" / "curves.png")
    assert size(path) == (1200, 600)
    assert draw_results({"arms": {"off": {"seeds": {"1": None}}}}, tmp_path / "none.png") is None
    assert not (tmp_path / "none.png").exists()


@pytest.mark.parametrize("held_out", [None, {"solo": {1: 0.0}}, {"other $arm": dict.fromkeys(range(12), 0.1)}])
def test_odd_input_is_drawn(tmp_path, held_out):
    curves = {"solo": {1: [(0, 0.0)], 2: []}}
    path = learning_curves(curves, tmp_path / "a.png", "$1 and $2", held_out=held_out, untrained={"solo": 0.2})
    assert size(path) == (1200, 600)


def test_nothing_at_all_is_drawn(tmp_path):
    assert size(learning_curves({}, tmp_path / "a.png", "empty")) == (1200, 600)


def test_matplotlib_is_imported_only_to_draw():
    code = "import sys, coterie.report.plots, coterie.report.terminal; print('matplotlib' in sys.modules or 'torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
