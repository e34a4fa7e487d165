"""One figure of a report: what it shows, in any width, and the same numbers as a table."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from coterie.report.html.colours import series
from coterie.report.html.marks import ARM_SHAPES, Drawing
from coterie.report.html.rows import Row, rows_figure
from coterie.report.html.tables import Table
from coterie.report.results import Results, arm_names

WIDE, NARROW = 860.0, 354.0
"""Widths in pixels: for a desktop, paper and files; for a phone."""


@dataclass(frozen=True, slots=True)
class Plot:
    """`draw` makes the drawing for a width; `title` says what is seen, `note` how to read it. `id` names its files."""

    id: str
    title: str
    note: str
    draw: Callable[[float], Drawing]
    table: Table


def looks(results: Results) -> tuple[dict[str, str], dict[str, str]]:
    """Each arm's colour and shape: two ways to tell arms apart, beside their names."""
    arms = arm_names(results)
    return series(arms, results.get("baseline")), {arm: ARM_SHAPES[i % len(ARM_SHAPES)] for i, arm in enumerate(arms)}


def in_rows(rows: Sequence[Row], unit: str, sign: bool = False, band: float | None = None) -> Callable[[float], Drawing]:
    return lambda width: rows_figure(rows, width, unit, sign=sign, band=band)
