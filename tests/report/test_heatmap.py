"""The picture of the cross-play matrix can be read: every value is there once, and no text lies over another."""

import itertools

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from rich.console import Console

from coterie.crossplay import means, of_seed
from coterie.report.heatmap import crossplay_figure, crossplay_means, crossplay_table, draw_crossplay


def record(count, name="chat-seed{}"):
    players = [name.format(17 + i) for i in range(count)] + ["base"]
    scores = [[(0.13 * (3 * r + 5 * c)) % 1.0 for c in range(count + 1)] for r in range(count + 1)]
    return {
        "recipe": "talk-to-solve", "arm": "chat", "model": "Some-Model-1.5B-Instruct", "players": players, "scores": scores,
        "rows": "A", "columns": "B", "held_out": 300, "episodes": 1, "means": means(scores),
        "by_seed": {str(17 + i): of_seed(scores, i) for i in range(count)},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("count", "name"), [(1, "chat-seed{}"), (3, "chat-seed{}"), (11, "a-rather-long-folder-of-an-arm-with-${}$-seed{}")]
)
def test_no_text_lies_over_another(count, name):
    figure = crossplay_figure(record(count, name.replace("${}$", "dollars")))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    labels = [*axes.texts, *axes.get_yticklabels(), axes.xaxis.label, axes.yaxis.label, figure._suptitle]
    boxes = [label.get_window_extent(canvas.get_renderer()) for label in labels]
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])]
    width, height = canvas.get_width_height()
    assert all(box.x0 >= 0 and box.x1 <= width and box.y0 >= 0 and box.y1 <= height for box in boxes)


def test_every_pair_is_shown_once_where_it_belongs():
    shown = record(3)
    shown["scores"][1][2] = None
    (axes,) = crossplay_figure(shown).axes
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    assert cells == {
        (c, r): "–" if value is None else f"{value:.2f}" for r, row in enumerate(shown["scores"]) for c, value in enumerate(row)
    }
    assert [label.get_text() for label in axes.get_yticklabels()] == shown["players"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("plays B", "plays A")


def test_it_is_written_and_the_tables_hold_the_numbers(tmp_path):
    shown = record(2)
    assert draw_crossplay(shown, tmp_path / "in" / "x.png").read_bytes()[:4] == b"\x89PNG"
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(crossplay_table(shown))
    console.print(crossplay_means(shown))
    text = console.export_text()
    assert all(f"{value:.3f}" in text for row in shown["scores"] for value in row)
    assert "with another seed" in text
