"""The page as one file, and its figures as files of their own."""

import base64
import hashlib
import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from coterie.records import disk_errors, write_text
from coterie.report.html import colours, png, svg
from coterie.report.html.marks import Drawing, Line, Mark, Words
from coterie.report.html.page import page, plots
from coterie.report.html.plot import WIDE
from coterie.report.html.rows import MARGIN, fit
from coterie.report.html.source import Source
from coterie.report.markdown import of_results
from coterie.types import CoterieError

GENERATOR = "coterie report"
"""By this a page of ours is known, and only such a file is overwritten."""

HERE = files("coterie.report.html")


def render(source: Source, stamp: str | None = None, every: float = 15.0) -> str:
    """The page. With a `stamp` it asks its own origin whether that is still the records', and loads itself anew when it is not,
    `every` so many seconds at most; without one, no request leaves it.

    Scripts and styles run by their digests alone (Content-Security-Policy); all text is escaped, and conversations are data that
    the script shows as text.
    """
    theme = "".join(
        (
            f":root{{{colours.variables(colours.LIGHT)}}}",
            f"@media (prefers-color-scheme: dark){{:root{{{colours.variables(colours.DARK)}}}}}",
            f"@media print{{:root{{{colours.variables(colours.LIGHT)}}}}}",
        )
    )
    style = theme + _read("style.css")
    script = _read("script.js")
    policy = [
        "default-src 'none'",
        f"style-src '{_digest(style)}'",
        f"script-src '{_digest(script)}'",
        "img-src data:",
        *(["connect-src 'self'"] if stamp else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    of = page(source)
    data = of.pop("conversations")
    text = environment.from_string(_read("template.html.j2")).render(
        **of,
        generator=GENERATOR,
        policy="; ".join(policy),
        style=Markup(style),
        script=Markup(script),
        count=len(data["items"]),
        data=Markup(embedded(data)),
        stamp=stamp,
        every=every,
    )
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate of a record cannot be written


def embedded(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element or begin a comment, and it stays the same JSON."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def write_page(text: str, path: Path) -> None:
    """Raises CoterieError where another file would be overwritten."""
    if path.exists() and not (path.is_file() and _ours(path)):
        raise CoterieError(f"{path} exists and is no report of coterie; choose another file with --out")
    write_text(path, text)


def _ours(path: Path) -> bool:
    with open(path, "rb") as file:
        return f'name="generator" content="{GENERATOR}'.encode() in file.read(4096)


def write_figures(source: Source, folder: Path) -> list[Path]:
    """Each figure as SVG and PNG, light on white with its title, and the tables as Markdown for a README."""
    written = []
    for plot in (one for section in plots(source).values() for one in section):
        drawing = _titled(plot.draw(WIDE), plot.title)
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in plot.id)
        write_text(folder / f"{name}.svg", svg.standalone(drawing, f"{plot.title}. {plot.note}"))
        with disk_errors(folder):
            png.draw(drawing, folder / f"{name}.png")
        written += [folder / f"{name}.svg", folder / f"{name}.png"]
    if any(arm["seeds"] for arm in source.results["arms"].values()):
        write_text(folder / "results.md", of_results(source.results) + "\n")
        written.append(folder / "results.md")
    return written


def _titled(drawing: Drawing, title: str) -> Drawing:
    """The drawing with its title above, as it stands in the page as a heading."""
    down = 34.0
    marks: list[Mark] = [Words(6, 22, fit(title, drawing.width - MARGIN, 14.5), size=14.5, bold=True)]
    for mark in drawing.marks:
        if isinstance(mark, Line):
            marks.append(replace(mark, points=tuple((x, y + down) for x, y in mark.points)))
        else:
            marks.append(replace(mark, y=mark.y + down))
    return Drawing(drawing.width, drawing.height + down, tuple(marks))


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
