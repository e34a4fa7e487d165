"""The report in headless Chromium: nothing fails, nothing leaves the page, and it is used by clicking."""

import json
import os
import random
import re
import shutil
import threading
from pathlib import Path

import pytest

from coterie.report.html import source
from coterie.report.html.source import read
from coterie.report.html.watch import Pages, serve
from coterie.report.html.write import render, write_page
from tests.commands import cli, here  # noqa: F401 (fixtures)
from tests.report.folders import HOSTILE, conversation, record, records, run_folders

playwright = pytest.importorskip("playwright.sync_api", reason="the Python package playwright is not installed")

MANY = 2000
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
FLAGS = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine (Debian: apt-get install chromium)")
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # its sandbox refuses root
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=found, args=flags)
        yield started
        started.close()


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    """The report of four runs with 2,000 conversations, one of which is hostile."""
    rng = random.Random(0)
    words = ["marbles", "keys", "Ann", "Ben", "has", "more", "than", "fewer", "each", "in all"]

    def talk(number: int) -> dict:
        first = " ".join(rng.choices(words, k=30)) + f" 12 and {number}"
        return conversation(number, first, "12 + 7 = 19", rng.choice([0.0, 0.5, 1.0]))

    names = ("chat-untrained", "chat-seed17", "off-untrained", "off-seed17")
    held_out = {name: [talk(number) for number in range(MANY // len(names))] for name in names}
    held_out["chat-seed17"][3] = conversation(3, HOSTILE, reward=None)
    folder = run_folders(tmp_path_factory.mktemp("browser") / "runs", held_out)
    scores = [[0.9, 0.8], [0.1, 0.05]]
    cross = {"arm": "chat", "seeds": [17], "players": ["a", "base"], "scores": scores, "rows": "A", "columns": "B"}
    (folder / "crossplay-chat.json").write_text(json.dumps(cross), encoding="utf-8")
    target = folder / "report.html"
    write_page(render(read(folder)), target)
    return target


@pytest.fixture
def opened(browser, path):
    """A function that opens the report and returns the page, its console, its requests and its errors."""
    contexts = []

    def open_page(size=DESKTOP, theme="light", address=None):
        context = browser.new_context(viewport=size, color_scheme=theme)
        contexts.append(context)
        page = context.new_page()
        said, asked = [], []
        page.on("console", lambda message: said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address or path.as_uri())
        return page, said, asked

    yield open_page
    for context in contexts:
        context.close()


def shown(page) -> list[str]:
    """All that is drawn, in view or not (`innerText` is empty where `content-visibility` has skipped the layout)."""
    return page.locator("#list article").all_text_contents()


def found(page) -> int:
    return int(page.locator("#count").inner_text().split()[0].replace(",", ""))


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("size", "width"), [(DESKTOP, "wide"), (PHONE, "narrow")])
def test_it_opens_from_disk_without_an_error_or_a_request(opened, path, size, width, theme):
    page, said, asked = opened(size, theme)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.wait_for_timeout(100)
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [path.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= size["width"]
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", background))) < 3 * 64) == (theme == "dark")
    for figure, mark, count in (
        ("differences-score", "seed", 1),
        ("scores", "seed", 2),
        ("scores", "before", 2),
        ("learning-curves", "curve", 2),
        ("cross-play-chat", "cell", 4),
    ):
        drawing = page.locator(f"#{figure} .drawing.{width}")
        assert drawing.is_visible()
        assert drawing.locator(f"[data-mark={mark}]").count() == count, (figure, mark)
        other = "narrow" if width == "wide" else "wide"
        assert not page.locator(f"#{figure} .drawing.{other}").is_visible()


def test_marks_are_where_their_axis_says(opened):
    """A seed's mark lies between the ticks whose numbers its value lies between."""
    page, _, _ = opened()
    (mark,) = page.locator("#differences-score .wide [data-mark=seed]").all()
    value = float(mark.get_attribute("data-value"))
    place = mark.bounding_box()
    middle = place["x"] + place["width"] / 2
    ticks = []
    for label in page.locator("#differences-score .wide text").all():
        if re.fullmatch(r"[+-]?\d+\.\d+", label.text_content()):
            box = label.bounding_box()
            ticks.append((float(label.text_content()), box["x"] + box["width"] / 2))
    (low, left), (high, right) = min(ticks), max(ticks)
    assert middle == pytest.approx(left + (value - low) / (high - low) * (right - left), abs=2)
    assert value == pytest.approx(record("chat", 17)["score"] - record("off", 17)["score"], abs=1e-5)


def test_filters_work_by_clicking(opened):
    page, said, _ = opened()
    assert found(page) == MANY
    page.select_option("#by-arm", "off")
    assert found(page) == MANY // 2
    page.select_option("#by-stage", "before training")
    assert found(page) == MANY // 4
    assert all("off" in text and "before training" in text for text in shown(page))
    page.select_option("#by-seed", "17")
    assert found(page) == 0
    assert shown(page) == []
    page.select_option("#by-stage", "after training")
    page.select_option("#by-outcome", "right")
    texts = shown(page)
    right = found(page)
    assert 0 < right < MANY // 4
    assert all("✓ right" in text and "off, seed 17" in text for text in texts)
    page.reload()  # the filters are in the address
    assert found(page) == right
    assert shown(page)[: len(texts)] == texts
    page.click("button[type=reset]")
    assert found(page) == MANY
    page.select_option("#by-task", "made-up-42")
    assert found(page) == 4
    assert all("made-up-42" in text for text in shown(page))
    page.click("button[type=reset]")
    page.fill("#by-text", "SCRIPT>")
    assert found(page) == 1
    assert said == []


def test_what_a_model_says_is_text(opened):
    page, said, asked = opened()
    title = page.title()
    page.select_option("#by-outcome", "not graded")
    (article,) = page.locator("#list article").all()
    text = article.locator(".text").first.text_content()
    assert text.startswith('<script>document.title = "run"</script><img src="http://192.0.2.1/x"')
    assert "␛[31m\\u202e12" in text
    assert article.locator("script, img").count() == 0
    assert page.title() == title
    assert said == []
    assert not [url for url in asked if "192.0.2.1" in url]


def test_private_numbers_stand_out_where_they_are_sent_and_used(opened):
    page, _, _ = opened()
    page.select_option("#by-task", "made-up-1")
    article = page.locator("#list article").first
    assert article.locator(".text .sent").all_text_contents() == ["12", "7", "12"]
    assert article.locator(".text .used").all_text_contents() == ["7"]


@pytest.mark.slow
def test_two_thousand_conversations_are_drawn_as_the_reader_comes_to_them(opened):
    page, said, _ = opened()
    count = page.locator("#list article").count
    assert 0 < count() <= 100
    for _ in range(MANY):
        before = count()
        if before == MANY:
            break
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_function("before => document.querySelectorAll('#list article').length > before", arg=before, timeout=20_000)
        assert count() - before <= 200
    assert count() == MANY
    assert said == []


def test_on_paper_it_is_light_without_controls(opened):
    page, _, _ = opened(DESKTOP, "dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    assert not page.locator("#filters").is_visible()
    assert page.locator("#differences-score .wide").is_visible()


@pytest.mark.slow
def test_a_watched_page_refreshes_itself_when_a_record_changes(opened, tmp_path):
    folder = records(tmp_path / "records")
    server = serve(Pages(lambda: source.stamp(folder), lambda now: render(read(folder), stamp=now, every=0)), 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        address = f"http://127.0.0.1:{server.server_port}/"
        page, said, asked = opened(address=address)
        with page.expect_response(f"{address}stamp", timeout=20_000):
            pass
        file = folder / "chat-seed17.json"
        changed = json.loads(file.read_text(encoding="utf-8")) | {"score": 0.123456}
        file.write_text(json.dumps(changed), encoding="utf-8")
        page.wait_for_selector("#scores .wide [data-value='0.123456']", timeout=30_000)
        assert said == []
        assert all(url.startswith((address, "data:")) for url in asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_the_report_of_runs_that_were_really_played(cli, opened, tmp_path):  # noqa: F811
    """What `make run` plays, for two steps and two seeds, opened and filtered."""
    out = tmp_path / "runs"
    sizes = ("--steps", 2, "--set", "tasks.held_out=8", "--set", "train.tasks_per_step=2")
    assert cli("run", "talk-to-solve", "--seeds", 17, 18, *sizes, "--out", out)[0] == 0
    code, text = cli("report", out)
    assert code == 0, text
    page, said, asked = opened(address=(out / "report.html").as_uri())
    assert said == []
    assert [url for url in asked if not url.startswith("data:")] == [(out / "report.html").as_uri()]
    assert page.locator("#differences-score .wide [data-mark=seed]").count() == 2
    assert page.locator("#scores .wide [data-mark=seed]").count() == 4
    assert page.locator("#learning-curves .wide [data-mark=curve]").count() == 4
    kept = sum(len((run / "evaluation.jsonl").read_text().splitlines()) for run in out.glob("*/") if run.is_dir())
    assert found(page) == kept > 0
    page.select_option("#by-arm", "off")
    assert 0 < found(page) < kept
