"""Figures of one axis and a row for each thing that is held against the others: forest plots, held-out scores, measures of talk.

A row has three lanes: its name and figures; the mean with its interval; every seed as a mark with its number below.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from textwrap import wrap

from coterie.report.html.marks import Box, Dot, Drawing, Line, Mark, Words
from coterie.report.html.scales import Scale, linear, ticks, written
from coterie.report.plots import spread

MARGIN = 16.0
LABEL = 12.0
SEED_LABEL = 10.0
SIZE, LIFT = 4.6, 4.5
CHARACTER = 0.58
"""The mean width of a character, in font sizes; text is laid out without a browser to ask."""

WIDEST = 1.0
"""An interval is drawn at most so far beyond the seeds, in units of their extent; an arrow says that it goes on."""


@dataclass(frozen=True, slots=True)
class Row:
    """`seeds` maps a training seed to its value. `interval` is around `centre`; `reference` is drawn as a dashed mark (the value
    before training). `note` stands at the end of the name's line. Rows of one `group` stand under it as a heading."""

    name: str
    colour: str
    shape: str
    seeds: Mapping[int, float]
    centre: float | None
    interval: tuple[float, float] | None = None
    reference: float | None = None
    note: str = ""
    group: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


def rows_figure(rows: Sequence[Row], width: float, unit: str, *, sign: bool = False, band: float | None = None) -> Drawing:
    """`sign`: values are differences, zero has a line of its own. `band`: what lies within so much of zero is shaded (the smallest
    difference of interest)."""
    low, high = extent(rows, band if sign else None)
    across = linear(low, high, MARGIN + 6, width - MARGIN - 6)
    values = ticks(low, high, 4 if width < 500 else 8)
    marks: list[Mark] = []
    y, group = 4.0, ""
    for row in rows:
        if row.group != group:
            group = row.group
            for line in lines_of(group, width - 2 * MARGIN, 13):
                marks.append(Words(MARGIN, y + 18, line, size=13, bold=True))
                y += 17
            y += 9
        lane = y + (50 if _on_two_lines(row, width) else 33)
        if sign and band:
            edge = across(-band)
            marks.append(Box(edge, lane - 12, across(band) - edge, 42, "band", facts={"mark": "band"}))
        marks += [Line(((across(value), lane - 12), (across(value), lane + 30)), "grid") for value in values]
        if sign:
            marks.append(Line(((across(0), lane - 12), (across(0), lane + 30)), "axis", 1.5, facts={"mark": "zero"}))
        marks += _row(row, y, lane, width, across, (low, high))
        y = lane + 48
    marks.append(Line(((MARGIN, y), (width - MARGIN, y)), "axis"))
    for value in values:
        marks.append(Line(((across(value), y), (across(value), y + 4)), "axis"))
        marks.append(Words(across(value), y + 17, written(value, values, sign), "muted", 11, "middle"))
    y += 17
    for line in lines_of(unit, width - 2 * MARGIN, LABEL):
        y += 17
        marks.append(Words(width / 2, y, line, "muted", LABEL, "middle"))
    return Drawing(width, y + 8, tuple(marks))


def extent(rows: Sequence[Row], band: float | None) -> tuple[float, float]:
    """The axis: zero, every seed, mean and reference, and intervals as far as `WIDEST` lets them go, with a little room."""
    inner = [0.0, *(value for row in rows for value in row.seeds.values())]
    inner += [value for row in rows for value in (row.centre, row.reference) if value is not None]
    inner += [-band, band] if band else []
    low, high = min(inner), max(inner)
    room = WIDEST * ((high - low) or 1.0)
    for row in rows:
        if row.interval:
            low, high = min(low, max(row.interval[0], min(inner) - room)), max(high, min(row.interval[1], max(inner) + room))
    gap = 0.03 * ((high - low) or 1.0)
    return (low - gap if low < 0 else low), high + gap


def _on_two_lines(row: Row, width: float) -> bool:
    """Whether the note does not fit beside the name."""
    return bool(row.note) and (len(row.name) + len(row.note)) * CHARACTER * LABEL + 30 > width - 2 * MARGIN


def _row(row: Row, y: float, lane: float, width: float, across: Scale, ends: tuple[float, float]) -> list[Mark]:
    below = _on_two_lines(row, width)
    room = width - 2 * MARGIN - 16 - (0 if below else len(row.note) * CHARACTER * LABEL)
    marks: list[Mark] = [
        Dot(MARGIN + 5, y + 12, row.shape, row.colour, 4.5),
        Words(MARGIN + 16, y + 16, fit(row.name, room, LABEL), size=LABEL, bold=True),
    ]
    if below:
        marks.append(Words(MARGIN + 16, y + 32, fit(row.note, room, LABEL - 1), "muted", LABEL - 1))
    elif row.note:
        marks.append(Words(width - MARGIN, y + 16, row.note, "muted", LABEL, "end"))
    if row.interval:
        marks += _interval(row, lane, across, ends)
    if row.reference is not None:
        x = across(row.reference)
        marks.append(Line(((x, lane - 9), (x, lane + 26)), "ink", 1.5, "4 3", facts={"mark": "before", **row.facts}))
    if row.centre is not None:
        x = across(row.centre)
        marks.append(Line(((x, lane - 8), (x, lane + 8)), row.colour, 4, facts={"mark": "mean", **row.facts}))
    return marks + _seeds(row, lane + 20, width, across)


def _interval(row: Row, lane: float, across: Scale, ends: tuple[float, float]) -> list[Mark]:
    assert row.interval is not None
    low, high = max(row.interval[0], ends[0]), min(row.interval[1], ends[1])
    facts = {"mark": "interval", **row.facts}
    marks: list[Mark] = [Line(((across(low), lane), (across(high), lane)), row.colour, 2.5, facts=facts)]
    for end, at, shape in ((row.interval[0], low, "left"), (row.interval[1], high, "right")):
        x = across(at)
        ends_here = end == at
        marks.append(Line(((x, lane - 5), (x, lane + 5)), row.colour, 2) if ends_here else Dot(x, lane, shape, row.colour, 5))
    return marks


def _seeds(row: Row, lane: float, width: float, across: Scale) -> list[Mark]:
    """A mark for every seed, and its number below, aside where numbers would overlap."""
    seeds = list(row.seeds)
    places = [across(row.seeds[seed]) for seed in seeds]
    gap = (max((len(str(seed)) for seed in seeds), default=1) + 0.8) * CHARACTER * SEED_LABEL
    numbered = len(seeds) * gap < width - 2 * MARGIN
    marks: list[Mark] = []
    if numbered:
        for seed, place, aside in zip(seeds, places, spread(places, gap, MARGIN, width - MARGIN), strict=True):
            marks.append(Line(((place, lane), (aside, lane + 11)), "axis", 0.8))
            marks.append(Words(aside, lane + 21, str(seed), "muted", SEED_LABEL, "middle"))
    for seed, place, level in zip(seeds, places, levels(places), strict=True):
        facts = {"mark": "seed", "seed": str(seed), "value": f"{row.seeds[seed]:.6g}", **row.facts}
        said = f"{row.name}, seed {seed}: {row.seeds[seed]:.3f}"
        marks.append(Dot(place, lane - level * LIFT, row.shape, row.colour, SIZE, said=said, facts=facts))
    return marks


def levels(places: Sequence[float]) -> list[int]:
    """How many steps each mark is lifted, so that one that would cover its left neighbour shows beside it: 0, 1 or 2."""
    found = [0] * len(places)
    order = sorted(range(len(places)), key=lambda i: places[i])
    for before, i in pairwise(order):
        found[i] = (found[before] + 1) % 3 if places[i] - places[before] < 2 * SIZE else 0
    return found


def lines_of(text: str, room: float, size: float) -> list[str]:
    """`text` on as many lines as it needs."""
    return wrap(text, max(8, int(room / (CHARACTER * size))))


def fit(text: str, room: float, size: float) -> str:
    """`text` cut to about `room` pixels, with an ellipsis where something is left out."""
    most = max(4, int(room / (CHARACTER * size)))
    return text if len(text) <= most else text[: most - 1] + "…"
