"""Published comparisons beside ours, at the width of a terminal."""

from io import StringIO

import pytest
from rich.console import Console

from coterie.report.published import published_lines, published_table
from coterie.stats.published import judge

FILE = {
    "talk": {
        "seeds": [17, 18, 19],
        "arms": {"off": [0.0375, 0.025, 0.0242], "chat": [0.4025, 0.145, 0.3475]},
        "[bold]": {"off": [0.1, 0.2, 0.1], "chat": [0.2, 0.3, 0.3]},
        "published_delta": {"baseline": "off", "arm": "chat", "delta": 0.365, "interval": [0.3208, 0.4092], "verdict": "moved"},
    },
    "sums": {"seeds": 1, "arms": {"8 / 0": [561.79], "4 / 4": [1093.31]}},
}


@pytest.mark.parametrize("width", [60, 80, 120])
def test_ours_and_theirs(width):
    console = Console(width=width, record=True, file=StringIO())
    console.print(published_table(judge(FILE)))
    text = console.export_text()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines.count("talk") == 1
    assert "chat − off +0.269 +0.365" in lines
    assert "-0.056 to +0.595 +0.321 to +0.409" in lines
    assert "unresolved moved" in lines
    assert "chat − off, [bold] +0.133 –" in lines
    assert "4 / 4 − 8 / 0 +531.5 –" in lines
    assert "…" not in text


def test_each_line_names_its_recipe_and_the_seeds_that_would_settle_it():
    lines = published_lines(judge(FILE))
    assert lines[0].startswith("talk: chat against off: unresolved.")
    assert "about 5 seeds would settle it" in lines[0]
    assert lines[-1].startswith("sums: 4 / 4 against 8 / 0: unresolved.")
