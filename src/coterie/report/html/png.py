"""A drawing as a PNG for papers and slides: the marks of the SVG, drawn by matplotlib, which is imported when one is drawn."""

from pathlib import Path
from typing import Any

from coterie.report.html.colours import LIGHT
from coterie.report.html.marks import SHAPES, Box, Drawing, Line, Mark, Words

_DPI = 72
"""At which a point of matplotlib is a pixel of the drawing."""

_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def draw(drawing: Drawing, path: Path, scale: float = 3.0) -> None:
    """Write `drawing`, `scale` pixels for each of its own, in the light theme."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(drawing.width / _DPI, drawing.height / _DPI), dpi=_DPI * scale, facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.axis("off")
    for order, mark in enumerate(drawing.marks):
        _draw(axes, mark, order)
    figure.savefig(path, metadata={"Software": None})


def _draw(axes: Any, mark: Mark, order: int) -> None:
    from matplotlib.patches import Circle, Polygon, Rectangle

    if isinstance(mark, Line):
        dash = (0, [float(part) / max(mark.width, 1) for part in mark.dash.split()]) if mark.dash else "solid"
        places = list(zip(*mark.points, strict=True)) or [(), ()]
        look = {"color": _colour(mark.colour), "linewidth": mark.width, "linestyle": dash, "alpha": mark.opacity}
        axes.plot(*places, **look, zorder=order, solid_joinstyle="round", solid_capstyle="butt")
    elif isinstance(mark, Words):
        weight = "bold" if mark.bold else "normal"
        text = mark.text.replace("$", r"\$")  # a dollar would start a formula
        look = {"fontsize": mark.size * 0.94, "ha": _ANCHORS[mark.anchor], "va": "baseline", "fontweight": weight}
        axes.text(mark.x, mark.y, text, color=_colour(mark.colour), zorder=order, **look)
    elif isinstance(mark, Box):
        edge: dict[str, Any] = {"edgecolor": _colour(mark.edge), "linewidth": mark.edge_width} if mark.edge else {"linewidth": 0}
        axes.add_patch(Rectangle((mark.x, mark.y), mark.width, mark.height, facecolor=_colour(mark.fill), zorder=order, **edge))
    else:
        colour = _colour(mark.colour)
        look = {"facecolor": "white" if mark.hollow else colour, "edgecolor": colour if mark.hollow else "white", "zorder": order}
        corners = [(mark.x + x * mark.size, mark.y + y * mark.size) for x, y in SHAPES[mark.shape]]
        shape = Polygon(corners, **look) if corners else Circle((mark.x, mark.y), mark.size, **look)
        axes.add_patch(shape)


def _colour(name: str) -> str:
    return LIGHT.get(name, name) if name != "none" else "none"
