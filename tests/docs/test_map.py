"""The map in docs/design.md is the territory: every module once, and imports that point up the table."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "coterie"
EXCEPTIONS = {("kinds", "builtin")}


def rows() -> list[list[str]]:
    """The modules and packages of each row."""
    text = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    table = text.split("## Map")[1].split("## Decisions")[0]
    first = re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE)
    return [[name.rstrip("/") for name in re.findall(r"`([\w/]+)`", cell)] for cell in first]


def imported(file: Path) -> set[str]:
    """The modules and packages directly below coterie that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "coterie":
            inside = node.module.split(".")[1:]
            found |= {inside[0]} if inside else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("coterie.")}
    return {name for name in found if not name.startswith("__")}


def test_every_module_is_on_the_map_once():
    there = sorted(path.stem for path in SOURCE.iterdir() if not path.name.startswith("__"))
    assert sorted(name for row in rows() for name in row) == there


def test_no_module_imports_one_of_a_row_below():
    place = {name: row for row, names in enumerate(rows()) for name in names}
    wrong = {
        (name, other)
        for name in place
        for file in ([SOURCE / f"{name}.py"] if (SOURCE / f"{name}.py").is_file() else (SOURCE / name).rglob("*.py"))
        for other in imported(file)
        if place[other] > place[name]
    }
    assert wrong == EXCEPTIONS


def test_what_is_to_be_tested_without_torch_imports_little():
    for name in ("protocols", "credit", "draws", "casts"):
        for file in (SOURCE / name).glob("*.py"):
            assert imported(file) <= {name, "types", "seeding"}, file
            assert not re.search(r"^\s*(import|from) torch\b", file.read_text(encoding="utf-8"), re.MULTILINE), file
