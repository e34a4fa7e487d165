"""Cross-play as a heat map: a cell for every pair, its value in it, the pairs of a player with itself framed."""

from collections.abc import Sequence

from coterie.report.html.colours import ink_on, ramp
from coterie.report.html.marks import Box, Drawing, Mark, Words
from coterie.report.html.rows import fit


def heat_figure(
    names: Sequence[str], scores: Sequence[Sequence[float | None]], rows: str, columns: str, width: float, facts: dict[str, str]
) -> Drawing:
    """`scores[r][c]`: player r in the seat `rows` with player c in the seat `columns`. None is a pair without a graded episode."""
    count = len(names)
    left = min(110.0, 20 + 7.0 * max((len(name) for name in names), default=0))
    size = min(76.0, (width - left - 12) / max(count, 1))
    known = [value for row in scores for value in row if value is not None]
    low, high = min([0.0, *known]), max([*known, 0.0]) or 1.0
    small = 12.0 if size >= 40 else 9.5
    top = 44.0
    marks: list[Mark] = [
        Words(left, 14, fit(f"plays {columns}", width - left, 12), "muted", 12, bold=True),
        Words(6, top - 10, fit(f"plays {rows}", left - 8, 12), "muted", 12, bold=True),
    ]
    for c, name in enumerate(names):
        marks.append(Words(left + (c + 0.5) * size, top - 8, _head(name, size, small), "ink", small, "middle"))
    for r, name in enumerate(names):
        marks.append(Words(left - 8, top + (r + 0.5) * size + 4, fit(name, left - 10, 12), "ink", 12, "end"))
        for c in range(count):
            value = scores[r][c]
            x, y = left + c * size, top + r * size
            fill = "band" if value is None else ramp((value - low) / ((high - low) or 1.0))
            said = f"{name} plays {rows} with {names[c]}: " + ("not graded" if value is None else f"{value:.3f}")
            cell = {"mark": "cell", "value": "" if value is None else f"{value:.6g}", **facts}
            marks.append(Box(x + 1, y + 1, size - 2, size - 2, fill, said=said, facts=cell))
            shown = "–" if value is None else f"{value:.2f}"
            colour = "muted" if value is None else ink_on(fill)
            marks.append(Words(x + size / 2, y + size / 2 + 4, shown, colour, small, "middle"))
    for r in range(count):
        inset = 2.5
        marks.append(Box(left + r * size + inset, top + r * size + inset, size - 2 * inset, size - 2 * inset, "none", "arm1", 2.5))
    return Drawing(left + count * size + 8 if width > 400 else width, top + count * size + 8, tuple(marks))


def _head(name: str, size: float, font: float) -> str:
    """A column's heading; of "seed 17" the number alone where the column is narrow."""
    short = name.rpartition(" ")[2] if len(name) * 0.58 * font > size else name
    return fit(short, size, font)
