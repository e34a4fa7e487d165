"""The cross-play matrix: as a picture, a table, and a sentence. matplotlib is imported when a figure is drawn, not before."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

KINDS = ("with itself", "with another seed", "with the base")


def draw_crossplay(record: Mapping[str, Any], path: str | Path) -> Path:
    """Write `crossplay_figure` to a file, and return its path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    crossplay_figure(record).savefig(path, metadata={"Software": None} if path.suffix == ".png" else None)
    return path


def crossplay_figure(record: Mapping[str, Any]) -> Any:
    """A heat map of the scores, one cell a pair, the value in each; the pairs of a player with itself are framed."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine
    from matplotlib.patches import Rectangle

    players, scores = record["players"], record["scores"]
    count = len(players)
    names = [_short(name) for name in players]
    size = max(4.5, 0.75 * count + 0.09 * max(map(len, names)) + 1.0)
    figure = Figure(figsize=(size, size + 1.2), dpi=150, layout=ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15))
    axes = figure.add_subplot()
    values = [[float("nan") if value is None else value for value in row] for row in scores]
    known = [value for row in scores for value in row if value is not None]
    low, high = min([0.0, *known]), max(known, default=0.0) or 1.0
    axes.imshow(values, cmap="viridis", vmin=low, vmax=high)
    for row in range(count):
        for column in range(count):
            value = scores[row][column]
            dark = value is not None and (value - low) / (high - low) < 0.6  # viridis is dark at its low end
            said = "–" if value is None else f"{value:.2f}"
            axes.text(column, row, said, ha="center", va="center", color="white" if dark else "black", fontsize=11)
        axes.add_patch(Rectangle((row - 0.48, row - 0.48), 0.96, 0.96, fill=False, edgecolor="#D55E00", linewidth=2))
    axes.set_xticks(range(count), names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(count), names)
    axes.set_xlabel(_plain(f"plays {record['columns']}"), fontsize=11)
    axes.set_ylabel(_plain(f"plays {record['rows']}"), fontsize=11)
    axes.tick_params(length=0, labelsize=10)
    axes.spines[:].set_visible(False)
    said = [f"{kind} {mean:.3f}" for kind in KINDS if (mean := record["means"].get(kind)) is not None]
    heading = f"{record['recipe']} · {record['arm']} · {record['model']}"
    notes = [f"team reward on {record['held_out']} held-out tasks, {record['episodes']} episode(s) each", "framed: with itself"]
    figure.suptitle(_plain("\n".join([heading, *said, *notes])), x=0.02, ha="left", fontsize=11)
    return figure


def crossplay_table(record: Mapping[str, Any]) -> Table:
    """Rows play the first seat, columns the others. The pairs of a player with itself are bold."""
    table = Table(title=Text(f"{record['rows']} (rows) with {record['columns']} (columns)"), title_justify="left", box=None)
    table.add_column(Text(""), no_wrap=True)
    for name in record["players"]:
        table.add_column(Text(name), justify="right")
    for row, name in enumerate(record["players"]):
        cells = [_cell(value, "bold" if row == column else "") for column, value in enumerate(record["scores"][row])]
        table.add_row(Text(name), *cells)
    return table


def crossplay_means(record: Mapping[str, Any]) -> Table:
    """Each seed's mean with itself, with other seeds and with the base, and the mean over all pairs."""
    table = Table(box=None)
    table.add_column("seed")
    for kind in KINDS:
        table.add_column(kind, justify="right")
    for seed, of in record["by_seed"].items():
        table.add_row(str(seed), *(_cell(of.get(kind)) for kind in KINDS))
    table.add_row("all pairs", *(_cell(record["means"].get(kind), "bold") for kind in KINDS))
    return table


def _cell(value: float | None, style: str = "") -> Text:
    return Text("–" if value is None else f"{value:.3f}", style)


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # a dollar would start a formula


def _short(name: str, most: int = 22) -> str:
    """Its end, which has the seed."""
    return _plain(name if len(name) <= most else "…" + name[1 - most :])
