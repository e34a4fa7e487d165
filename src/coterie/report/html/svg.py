"""A drawing as SVG: inside a page, where the theme's variables colour it, or as a file of its own."""

from collections.abc import Callable, Mapping

from markupsafe import Markup, escape

from coterie.report.html.colours import LIGHT
from coterie.report.html.marks import SHAPES, Box, Dot, Drawing, Line, Mark, Words

Paint = Callable[[str], str]


def inline(drawing: Drawing, label: str) -> Markup:
    """For a page that defines the colours as CSS variables. `label` is what a screen reader says in its place."""
    return _svg(drawing, label, lambda colour: f"var(--{colour})" if colour in LIGHT else colour, "")


def standalone(drawing: Drawing, label: str) -> str:
    """A whole file, in the light theme on white."""
    body = _svg(drawing, label, lambda colour: LIGHT.get(colour, colour), ' xmlns="http://www.w3.org/2000/svg"', background=True)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def _svg(drawing: Drawing, label: str, paint: Paint, extra: str, background: bool = False) -> Markup:
    size = f'viewBox="0 0 {_n(drawing.width)} {_n(drawing.height)}" width="{_n(drawing.width)}" height="{_n(drawing.height)}"'
    whole = [Box(0, 0, drawing.width, drawing.height, "paper")] if background else []
    body = "".join(_mark(mark, paint) for mark in (*whole, *drawing.marks))
    # every part of it is escaped where it is made
    head = (
        f'<svg{extra} {size} role="img" aria-label="{escape(label)}" font-family="system-ui, -apple-system, Segoe UI, sans-serif">'
    )
    return Markup(f"{head}{body}</svg>")


def _mark(mark: Mark, paint: Paint) -> str:
    if isinstance(mark, Line):
        points = " ".join(f"{_n(x)},{_n(y)}" for x, y in mark.points)
        more = (f' stroke-dasharray="{mark.dash}"' if mark.dash else "") + (
            f' opacity="{mark.opacity}"' if mark.opacity < 1 else ""
        )
        style = f'fill="none" stroke="{paint(mark.colour)}" stroke-width="{_n(mark.width)}" stroke-linejoin="round"{more}'
        return f'<polyline points="{points}" {style}{_data(mark.facts)}/>'
    if isinstance(mark, Words):
        bold = ' font-weight="600"' if mark.bold else ""
        anchor = f' text-anchor="{mark.anchor}"' if mark.anchor != "start" else ""
        place = f'x="{_n(mark.x)}" y="{_n(mark.y)}" font-size="{_n(mark.size)}"'
        return f'<text {place} fill="{paint(mark.colour)}"{anchor}{bold}>{escape(mark.text)}</text>'
    if isinstance(mark, Box):
        edge = f' stroke="{paint(mark.edge)}" stroke-width="{_n(mark.edge_width)}"' if mark.edge else ""
        place = f'x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" height="{_n(mark.height)}"'
        return f'<rect {place} fill="{paint(mark.fill)}"{edge}{_data(mark.facts)}{_end("rect", mark.said)}'
    return _dot(mark, paint)


def _dot(mark: Dot, paint: Paint) -> str:
    colour, paper = paint(mark.colour), paint("paper")
    style = f'fill="{paper}" stroke="{colour}" stroke-width="1.8"' if mark.hollow else f'fill="{colour}" stroke="{paper}"'
    if mark.shape == "circle":
        return (
            f'<circle cx="{_n(mark.x)}" cy="{_n(mark.y)}" r="{_n(mark.size)}" {style}{_data(mark.facts)}{_end("circle", mark.said)}'
        )
    corners = " ".join(f"{_n(mark.x + x * mark.size)},{_n(mark.y + y * mark.size)}" for x, y in SHAPES[mark.shape])
    return f'<polygon points="{corners}" {style}{_data(mark.facts)}{_end("polygon", mark.said)}'


def _end(tag: str, said: str) -> str:
    return f"><title>{escape(said)}</title></{tag}>" if said else "/>"


def _data(facts: Mapping[str, str]) -> str:
    return "".join(f' data-{name}="{escape(value)}"' for name, value in facts.items())


def _n(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
