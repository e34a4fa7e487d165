"""The tutorials work as they are written: every file, program and command of a page, in order, in an empty folder."""

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.commands import cli, fresh_kinds, here, tiny  # noqa: F401 (fixtures)

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("write-a-protocol", "write-a-credit-rule", "bring-your-own-tasks", "swarm", "statistics")
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str, str]]:
    """(language, file or "", text) of each fenced block."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert text.count("\n```") % 2 == 0
    found = _FENCE.findall(text)
    assert len(found) == text.count("\n```") // 2, "a block without a language would not be run"
    return found


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.usefixtures("here", "fresh_kinds", "tiny")
def test_a_page_works(cli, tmp_path, monkeypatch, page):  # noqa: F811
    """A block with a title is that file. Other python is run, in one namespace a page; every line of sh is a coterie command that
    must succeed; toml without a title is an excerpt, and text is shown only: it needs other machines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    names = {"__name__": "page"}
    before = set(sys.modules)
    for language, file, text in blocks(page):
        if file:
            (tmp_path / file).write_text(text, encoding="utf-8")
        elif language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
        elif language == "sh":
            for line in text.splitlines():
                program, *words = shlex.split(line)
                assert program == "coterie"
                code, said = cli(*words)
                assert code == 0, f"{line}\n{said}"
        else:
            assert language in ("toml", "text"), f"{page}.md: nobody runs a block of {language}"
    for module in {file.removesuffix(".py") for _, file, _ in blocks(page)} & (set(sys.modules) - before):
        del sys.modules[module]


def test_the_page_shows_the_example_that_is_in_the_repository():
    shown = {file: text for _, file, text in blocks("write-a-protocol") if file}
    for file in (DOCS / "examples" / "coordinator").glob("*.*"):
        assert shown[file.name] == file.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_lines_and_links(page):
    """Lines of prose and code fit an editor (records of tasks may not), and links to other pages lead somewhere."""
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    assert [line for line in text.splitlines() if len(line) > 140 and not line.startswith("{")] == []
    for target in re.findall(r"\]\(([\w-]+\.md)\)", text):
        assert (DOCS / target).is_file()
