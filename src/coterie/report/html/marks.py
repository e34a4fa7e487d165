"""What a figure is made of: a few kinds of marks at places in pixels, y downwards. `svg` and `png` draw the same marks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

Colour = str
"""A name of `colours.LIGHT` and `colours.DARK`, or "#rrggbb" where it is the same in both."""

Point = tuple[float, float]
Facts = Mapping[str, str]
"""What a mark stands for; in SVG its data attributes, by which tests and scripts find it."""

SHAPES: dict[str, tuple[Point, ...]] = {
    "circle": (),
    "square": ((-0.88, -0.88), (0.88, -0.88), (0.88, 0.88), (-0.88, 0.88)),
    "up": ((0, -1.15), (1.05, 0.8), (-1.05, 0.8)),
    "diamond": ((0, -1.25), (1.1, 0), (0, 1.25), (-1.1, 0)),
    "down": ((0, 1.15), (1.05, -0.8), (-1.05, -0.8)),
    "pentagon": ((0, -1.1), (1.05, -0.34), (0.65, 0.9), (-0.65, 0.9), (-1.05, -0.34)),
    "right": ((1.15, 0), (-0.8, 1.05), (-0.8, -1.05)),
    "left": ((-1.15, 0), (0.8, 1.05), (0.8, -1.05)),
}
"""Corners in units of the mark's size; a circle has none."""

ARM_SHAPES = ("circle", "square", "up", "diamond", "down", "pentagon")


@dataclass(frozen=True, slots=True)
class Line:
    points: tuple[Point, ...]
    colour: Colour = "grid"
    width: float = 1.0
    dash: str = ""
    opacity: float = 1.0
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float
    shape: str
    colour: Colour
    size: float = 4.5
    hollow: bool = False
    said: str = ""
    facts: Facts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Words:
    x: float
    y: float
    text: str
    colour: Colour = "ink"
    size: float = 12.0
    anchor: str = "start"
    bold: bool = False


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    fill: Colour
    edge: Colour = ""
    edge_width: float = 2.0
    said: str = ""
    facts: Facts = field(default_factory=dict)


Mark = Line | Dot | Words | Box


@dataclass(frozen=True, slots=True)
class Drawing:
    width: float
    height: float
    marks: tuple[Mark, ...]
