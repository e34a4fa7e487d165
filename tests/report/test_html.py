"""The page of `coterie report`: every figure is made from the records, and what models say is text and nothing else."""

import base64
import hashlib
import json
import threading
import unicodedata
import urllib.error
import urllib.request
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from statistics import mean
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from coterie.report.html import colours, source
from coterie.report.html.conversations import outcome, parts, read_conversations, visible
from coterie.report.html.scales import ticks
from coterie.report.html.source import Source, read
from coterie.report.html.watch import Pages, serve
from coterie.report.html.write import embedded, render, write_figures, write_page
from coterie.types import CoterieError
from tests.commands import cli  # noqa: F401 (a fixture)
from tests.report.folders import HOSTILE, conversation, record, records, run_folders

SEEDS = (17, 18, 19, 20, 21)
quick = settings(max_examples=60, deadline=None)
VOID = {"meta", "link", "img", "input", "br"}


class Page(HTMLParser):
    """Elements with their attributes, the ids and classes above them, and their text."""

    def __init__(self, text: str):
        super().__init__()
        self.elements: list[tuple[str, dict[str, str], tuple[str, ...]]] = []
        self.text: dict[str, list[str]] = {}
        self._open: list[tuple[str, tuple[str, ...]]] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = {key: value or "" for key, value in attrs}
        names = (found.get("id", ""), *found.get("class", "").split())
        above = tuple(name for _, of in self._open for name in of if name)
        self.elements.append((tag, found, above))
        if tag not in VOID:
            self._open.append((tag, names))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self._open.pop()

    def handle_endtag(self, tag):
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data):
        if self._open:
            self.text.setdefault(self._open[-1][0], []).append(data)

    def marks(self, figure: str, kind: str, width: str = "wide", **facts: str) -> list[dict[str, str]]:
        wanted = {"data-mark": kind, **{f"data-{key}": value for key, value in facts.items()}}
        inside = [found for _, found, above in self.elements if figure in above and width in above]
        return [found for found in inside if wanted.items() <= found.items()]

    def all(self, tag: str) -> list[str]:
        return self.text.get(tag, [])


def page_of(folder: Path) -> Page:
    return Page(render(read(folder)))


def conversations_of(page: Page) -> dict:
    return json.loads(next(text for text in page.all("script") if text.startswith("{")))


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> Path:
    return records(tmp_path_factory.mktemp("report") / "committed")


@pytest.fixture(scope="module")
def whole(committed) -> Page:
    return page_of(committed)


@pytest.mark.parametrize("width", ["wide", "narrow"])
def test_a_forest_plot_has_a_mark_for_every_seed_at_its_difference(whole, width):
    found = {int(m["data-seed"]): float(m["data-value"]) for m in whole.marks("differences-score", "seed", width)}
    assert found == pytest.approx({s: record("chat", s)["score"] - record("off", s)["score"] for s in SEEDS}, abs=1e-5)
    for kind in ("mean", "interval", "zero", "band"):
        assert len(whole.marks("differences-score", kind, width)) == 1, kind


def test_marks_stand_in_the_order_of_their_values_and_the_mean_among_them(whole):
    seeds = whole.marks("differences-score", "seed")
    places = [mean(float(corner.split(",")[0]) for corner in m["points"].split()) for m in seeds]
    values = [float(m["data-value"]) for m in seeds]
    by_value = [place for _, place in sorted(zip(values, places, strict=True))]
    assert by_value == sorted(places)
    middle = float(whole.marks("differences-score", "mean")[0]["points"].split(",")[0])
    assert middle == pytest.approx(mean(places), abs=0.5)


def test_held_out_scores_show_every_seed_and_the_untrained_model(whole):
    for arm in ("chat", "off"):
        found = {int(m["data-seed"]): float(m["data-value"]) for m in whole.marks("scores", "seed", arm=arm)}
        assert found == pytest.approx({seed: record(arm, seed)["score"] for seed in SEEDS}, abs=1e-5)
        assert len(whole.marks("scores", "before", arm=arm)) == 1


def test_learning_curves_have_a_line_for_every_seed_and_a_mean_for_every_arm(whole):
    for arm in ("chat", "off"):
        lines = whole.marks("learning-curves", "curve", arm=arm)
        assert {int(line["data-seed"]) for line in lines} == set(SEEDS)
        assert all(len(line["points"].split()) == len(record(arm, 17)["curve"]) for line in lines)
        assert len(whole.marks("learning-curves", "mean-curve", arm=arm)) == 1


def test_talk_is_held_against_the_channel_off_arm(whole):
    for arm in ("chat", "off"):
        found = [float(m["data-value"]) for m in whole.marks("talk", "seed", arm=arm, measure="used")]
        assert found == pytest.approx([record(arm, seed)["measures"]["used"] for seed in SEEDS], abs=1e-5)
    gap = mean(record("chat", s)["measures"]["used"] for s in SEEDS) - mean(record("off", s)["measures"]["used"] for s in SEEDS)
    assert f"{gap:+.3f}" in whole.all("td")


def test_talk_above_chance_has_a_mark_for_every_seed(whole):
    found = [float(m["data-value"]) for m in whole.marks("over-chance", "seed", arm="chat", measure="used")]
    gaps = [record("chat", seed)["measures"]["used"] - record("off", seed)["measures"]["used"] for seed in SEEDS]
    assert found == pytest.approx(gaps, abs=1e-5)
    assert len(whole.marks("over-chance", "interval", arm="chat", measure="used")) == 1


def test_the_channel_off_arm_need_not_be_the_baseline():
    from coterie.recipe import recipes_folder

    page = page_of(recipes_folder() / "three-way-talk" / "results" / "pocket")
    assert "less off" in page.all("th")


def test_editing_a_record_changes_the_page(tmp_path):
    folder = records(tmp_path / "records")
    before = page_of(folder)
    file = folder / "chat-seed17.json"
    changed = json.loads(file.read_text(encoding="utf-8"))
    changed["score"], changed["curve"] = 0.123456, changed["curve"][:7]
    changed["measures"]["used"], changed["minutes"]["train"] = 0.0123, 987654.0
    file.write_text(json.dumps(changed), encoding="utf-8")
    after = page_of(folder)
    assert after.marks("scores", "seed", arm="chat", seed="17", value="0.123456")
    assert not before.marks("scores", "seed", arm="chat", seed="17", value="0.123456")
    (curve,) = after.marks("learning-curves", "curve", arm="chat", seed="17")
    assert len(curve["points"].split()) == 7
    assert after.marks("talk", "seed", arm="chat", measure="used", value="0.0123")
    minutes = mean([987654.0, *(record("chat", seed)["minutes"]["train"] for seed in SEEDS[1:])])
    assert f"{minutes:,.1f}" in after.all("td")
    assert [s for s in before.all("p") if "higher by" in s] != [s for s in after.all("p") if "higher by" in s]


def test_a_heat_map_has_a_cell_for_every_pair(tmp_path):
    folder = records(tmp_path / "records")
    scores = [[0.9, 0.8, None], [0.7, 0.95, 0.2], [0.1, 0.3, 0.05]]
    said = {"arm": "chat", "seeds": [17, 18], "players": ["a", "b", "base"], "scores": scores, "rows": "A", "columns": "B"}
    (folder / "crossplay-chat.json").write_text(json.dumps(said), encoding="utf-8")
    cells = page_of(folder).marks("cross-play-chat", "cell")
    assert [cell["data-value"] for cell in cells] == ["" if v is None else f"{v:g}" for row in scores for v in row]
    shades = {cell["data-value"]: int(cell["fill"][1:3], 16) for cell in cells if cell["fill"].startswith("#")}
    assert shades["0.95"] < shades["0.7"] < shades["0.2"] < shades["0.05"]  # darker is higher


def test_a_swarm_shows_what_sharing_did_and_the_scores_of_specialties():
    from coterie.recipe import recipes_folder

    folder = recipes_folder() / "sapo" / "results" / "smollm2-135m"
    page = page_of(folder)
    one = json.loads((folder / "4-4-seed17.json").read_text(encoding="utf-8"))
    cells = page.all("td")
    for value in (one["swarm"]["cumulative_reward"], one["swarm"]["training_reward"], one["swarm"]["useful_share"]):
        assert f"{value:,.3f}" in cells
    assert f"{one['swarm']['bytes_sent']:,.0f}" in cells
    for name, score in one["specialties"].items():
        assert page.marks("specialties", "seed", arm="4-4", measure=name, value=f"{score:.6g}")


@pytest.mark.parametrize(
    "stated",
    [
        [{"name": "overlap", "ok": True, "said": "none"}, {"name": "canary", "ok": False, "said": "it sang"}],
        {
            "chat-seed17": [
                {"name": "overlap", "status": "ok", "said": "none"},
                {"name": "canary", "status": "fault", "said": "it sang"},
            ]
        },
    ],
)
def test_checks_that_the_summary_states_are_shown(committed, stated):
    found = read(committed)
    found.results["checks"] = stated
    page = Page(render(found))
    cells = page.all("td")
    (fault,) = {cells[i - 1] for i, cell in enumerate(cells) if cell.endswith("it sang")}
    (fine,) = {cells[i - 1] for i, cell in enumerate(cells) if cell.endswith("none")}
    assert (fault, fine) == ("✗ fault", "✓ ok")
    assert any(name.endswith("canary") for name in page.all("th"))


def test_checks_of_the_runs_are_made_from_their_records(whole):
    from coterie.checks import check_folder
    from tests.report.folders import RECORDS

    found = check_folder(RECORDS)
    rows = sum(len(checks) for checks in found.values())
    assert rows > 2 * len(SEEDS)
    assert len([name for name in whole.all("th") if name in found]) == rows


def test_checks_count_what_the_grader_failed_on(committed):
    found = read(committed)
    cells = Page(render(found)).all("td")
    assert cells[cells.index("every held-out answer was graded") - 1] == "✓ ok"
    found.results["arms"]["chat"]["seeds"]["17"]["grading_errors"] = 3
    cells = Page(render(found)).all("td")
    assert cells[cells.index("chat 3") - 1] == "✗ fault"


def test_text_of_the_records_is_escaped_wherever_it_stands(committed):
    found = read(committed)
    chat = found.results["arms"].pop("chat")
    found.results["arms"][HOSTILE] = {**chat, "change": HOSTILE}
    for key in ("title", "question", "model", "recipe", "profile", "metric"):
        found.results[key] = HOSTILE
    row = found.results["comparisons"][0]
    row.update(arm=HOSTILE, verdict=HOSTILE, sentence=HOSTILE)
    found.results["checks"] = [{"name": HOSTILE, "ok": True, "said": HOSTILE}]
    chat["seeds"]["17"]["cross_play"] = {HOSTILE: {"score": 0.5}}
    plain, hostile = Page(render(read(committed))), Page(render(found))
    tags = {"script", "img", "style", "iframe", "base", "form", "title"}
    count = {tag: sum(t == tag for t, _, above in hostile.elements if "svg" not in above) for tag in tags - {"title"}}
    assert count == {tag: sum(t == tag for t, _, above in plain.elements) for tag in tags - {"title"}}
    assert not any(name.startswith("on") for _, of, _ in hostile.elements for name in of)
    assert any(HOSTILE in text for text in hostile.all("h1"))


def test_the_page_is_alone_and_runs_nothing_but_its_own_script(committed):
    text = render(read(committed))
    page = Page(text)
    (policy,) = [of["content"] for _, of, _ in page.elements if of.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    assert "connect-src" not in rules
    (style,), scripts = page.all("style"), page.all("script")
    (script,) = [one for one in scripts if not one.startswith("{")]
    for rule, body in (("style-src", style), ("script-src", script)):
        assert rules[rule] == f"'sha256-{base64.b64encode(hashlib.sha256(body.encode()).digest()).decode()}'"
    for tag, of, _ in page.elements:
        assert "style" not in of, "the policy would refuse it"
        assert of.get("href", "#")[0] == "#" or of["href"] == "data:,", tag
        assert "src" not in of, tag
    assert "http://" not in script
    assert "innerHTML" not in script


def test_committed_records_have_no_conversations_and_the_page_says_so(whole):
    assert conversations_of(whole) == {"items": [], "tasks": []}
    assert any("hold no conversations" in text for text in whole.all("p"))
    assert not [of for _, of, _ in whole.elements if of.get("id") == "filters"]


def test_conversations_before_and_after_with_private_numbers_where_they_are_sent_and_used(tmp_path):
    before = [conversation(1, "hello", reward=0.0)]
    after = [conversation(1, "I have 12, and 5", "12 + 7 = 19"), conversation(2, HOSTILE, reward=None)]
    folder = run_folders(tmp_path, {"chat-untrained": before, "chat-seed17": after})
    text = render(read(folder))
    found = conversations_of(Page(text))
    assert "<script>document" not in text
    assert "<img" not in text
    first, second, third = found["items"]
    assert [(one["stage"], one["seed"], one["outcome"]) for one in (first, second, third)] == [
        ("before training", None, "wrong"),
        ("after training", 17, "right"),
        ("after training", 17, "not graded"),
    ]
    assert second["messages"][0]["parts"] == [["I have ", ""], ["12", "sent"], [", and 5", ""]]
    assert second["messages"][1]["parts"] == [["and I have ", ""], ["7", "sent"]]
    assert second["messages"][2]["parts"] == [["12", "sent"], [" + ", ""], ["7", "used"], [" = 19", ""]]
    said = "".join(text for text, _ in third["messages"][0]["parts"])
    assert said == HOSTILE.replace("\x1b", "␛").replace("\u202e", "\\u202e")
    assert found["tasks"][first["task"]]["ask"] == "How many marbles are there?"
    assert found["tasks"][first["task"]]["facts"][1] == ["B", [["Ben has ", ""], ["7", "sent"], [".", ""]]]


def test_a_run_that_goes_on_shows_its_steps_and_its_last_conversations(tmp_path):
    folder = run_folders(tmp_path, {"chat-seed17": [], "off-seed17": []})
    run = folder / "chat-seed17"
    (run / "result.json").unlink()
    curve = [{"step": step, "reward": step / 10} for step in range(1, 4)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in curve), encoding="utf-8")
    samples = [{"step": step, **conversation(step, "hello")} for step in (2, 3, 3)]
    (run / "episodes.jsonl").write_text("".join(json.dumps(one) + "\n" for one in samples), encoding="utf-8")
    page = page_of(folder)
    assert len(page.marks("learning-curves", "curve", arm="off")) == 1
    assert "chat" in page.all("dt")
    (bar,) = [of for tag, of, _ in page.elements if tag == "progress"]
    assert (bar["value"], int(bar["max"])) == ("3", record("chat", 17)["steps"])
    assert [one["stage"] for one in conversations_of(page)["items"]] == ["step 3 of training"] * 2
    (folder / "off-seed17" / "result.json").unlink()
    page = page_of(folder)  # none has finished
    assert any("Nothing was compared" in text for text in page.all("p"))
    assert len(page.marks("learning-curves", "curve", arm="chat")) == 1


def test_a_conversation_of_another_shape_is_counted_and_left_out(tmp_path):
    folder = run_folders(tmp_path, {"chat-seed17": [{"messages": 3}, conversation(1, "hello"), {"task_id": "x", "messages": [1]}]})
    found = read_conversations(folder)
    assert [one["outcome"] for one in found.items] == ["right"]
    assert [note.split(" are ")[0] for note in found.notes] == ["2 conversations of chat-seed17"]


@quick
@given(st.text())
def test_embedded_data_stays_the_same_and_cannot_leave_its_element(text):
    made = embedded({"text": text})
    assert json.loads(made) == {"text": text}
    assert not set("<>&\u2028\u2029") & set(made)


@quick
@given(
    st.text(alphabet=st.characters(codec=None)) | st.lists(st.sampled_from(["12", "7", " ", "\x1b", "1,2", "\ud800"])).map("".join)
)
def test_parts_are_the_whole_text_and_nothing_that_steers(text):
    found = parts(text, frozenset({"12"}), frozenset({"7"}))
    shown = "".join(part for part, _ in found)
    assert shown == visible(text)
    assert not {unicodedata.category(c) for c in shown if c not in "\n\t"} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert {part for part, kind in found if kind == "sent"} <= {"12"}


def test_control_characters_have_symbols():
    assert visible("a\x00\x07\x1b[0m\r\x7f\x85\u200b\u202e\u2028\ud800\n\tb") == ("a␀␇␛[0m␍␡\\x85\\u200b\\u202e\\u2028\\ud800\n\tb")


@pytest.mark.parametrize(("reward", "said"), [(None, "not graded"), (0.0, "wrong"), (0.5, "partly right"), (1.0, "right")])
def test_outcomes(reward, said):
    assert outcome(reward) == said


@quick
@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 9))
def test_ticks_are_round_inside_and_evenly_apart(low, span, most):
    found = ticks(low, low + span, most)
    assert 1 <= len(found) <= most + 1
    room = 1e-6 * max(abs(low), span)
    assert all(low - room <= value <= low + span + room for value in found)
    gaps = [b - a for a, b in pairwise(found)]
    if gaps:
        assert max(gaps) == pytest.approx(min(gaps), rel=1e-3, abs=room)
        assert f"{mean(gaps):.3e}"[:4] in ("1.00", "2.00", "5.00") or room > mean(gaps) / 1e3


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("palette", [colours.LIGHT, colours.DARK])
def test_colours_stand_out_in_both_themes(palette):
    assert palette.keys() == colours.LIGHT.keys()
    for name in ("base", *(f"arm{i}" for i in range(colours.SERIES))):
        assert contrast(palette[name], palette["paper"]) >= 3, name
    for name in ("ink", "muted", "link", "good", "bad", "warn"):
        assert contrast(palette[name], palette["paper"]) >= 4.5, name
        assert contrast(palette[name], palette["panel"]) >= 4.5, name
    for name in ("sent", "used"):
        assert contrast(palette[name], palette[f"{name}-paper"]) >= 4.5, name


@pytest.mark.parametrize("share", [0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0])
def test_values_are_read_on_every_shade(share):
    shade = colours.ramp(share)
    assert contrast(colours.ink_on(shade), shade) >= 4.5


def test_figures_for_papers(committed, tmp_path):
    found = read(committed)
    written = {path.name for path in write_figures(found, tmp_path)}
    for name in ("differences-score", "scores", "learning-curves", "talk"):
        assert {f"{name}.svg", f"{name}.png"} <= written
    drawing = ElementTree.parse(tmp_path / "differences-score.svg").getroot()
    assert sum(of.get("data-mark") == "seed" for of in drawing.iter()) == len(SEEDS)
    assert "var(" not in (tmp_path / "differences-score.svg").read_text(encoding="utf-8")
    with Image.open(tmp_path / "differences-score.png") as image:
        assert image.size[0] == pytest.approx(3 * float(drawing.get("width")), abs=3)
        assert image.convert("RGB").getpixel((1, 1)) == (255, 255, 255)
        (lowest,) = [
            of for of in drawing.iter() if of.get("data-mark") == "seed" and of.get("data-seed") == "17"
        ]  # covered by none
        corners = [tuple(map(float, corner.split(","))) for corner in lowest.get("points").split()]
        middle = tuple(round(3 * mean(axis)) for axis in zip(*corners, strict=True))
        assert image.convert("RGB").getpixel(middle) == (0x00, 0x72, 0xB2)
    assert f"| {record('chat', 17)['score']:.3f} |" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_only_a_report_is_overwritten(committed, tmp_path):
    text, path = render(read(committed)), tmp_path / "report.html"
    write_page(text, path)
    write_page(text, path)
    path.write_text("<p>mine</p>", encoding="utf-8")
    with pytest.raises(CoterieError, match="--out"):
        write_page(text, path)
    assert path.read_text(encoding="utf-8") == "<p>mine</p>"


def test_the_command(cli, tmp_path):  # noqa: F811
    folder = records(tmp_path / "records")
    code, said = cli("report", folder, "--figures", tmp_path / "figures")
    assert code == 0
    assert str(folder / "report.html") in said
    assert len(Page((folder / "report.html").read_text(encoding="utf-8")).marks("scores", "seed")) == 2 * len(SEEDS)
    assert (tmp_path / "figures" / "scores.png").is_file()
    for words in (["report", tmp_path / "none"], ["report", folder, "--watch", "--out", "x.html"], ["report", tmp_path]):
        code, said = cli(*words)
        assert code == 2, words
        assert said.startswith("coterie: ")


def test_watching_serves_the_page_anew_when_a_record_changes(tmp_path):
    folder = records(tmp_path / "records")
    server = serve(Pages(lambda: source.stamp(folder), lambda now: render(read(folder), stamp=now)), 0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"

    def ask(path: str, host: str | None = None) -> str:
        wanted = urllib.request.Request(address + path, headers={"Host": host} if host else {})
        with urllib.request.urlopen(wanted, timeout=20) as answer:
            return answer.read().decode()

    try:
        assert server.server_address[0] == "127.0.0.1"
        stamp, page = ask("/stamp"), ask("/")
        assert stamp == ask("/stamp")
        assert any("connect-src 'self'" in of.get("content", "") for _, of, _ in Page(page).elements)
        assert f'data-stamp="{stamp}"' in page
        file = folder / "chat-seed17.json"
        changed = json.loads(file.read_text(encoding="utf-8")) | {"score": 0.123456}
        file.write_text(json.dumps(changed), encoding="utf-8")
        assert ask("/stamp") != stamp
        assert Page(ask("/")).marks("scores", "seed", value="0.123456")
        file.write_text("{", encoding="utf-8")  # as if somebody were editing it
        assert Page(ask("/")).marks("scores", "seed", value="0.123456")
        for path, host, code in (("/report.html", None, 404), ("/../chat-seed17.json", None, 404), ("/", "evil.example:80", 403)):
            with pytest.raises(urllib.error.HTTPError) as refused:
                ask(path, host)
            assert refused.value.code == code
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("empty", [{}, {"arms": {}}, {"arms": {"off": {"seeds": {}}}}, {"arms": {"off": {"seeds": {"1": None}}}}])
def test_a_summary_with_holes_is_no_error(empty):
    assert Page(render(Source({**empty}))).all("h1") is not None


def test_the_sample_with_holes(results):
    page = Page(render(Source(results)))
    assert len(page.marks("differences-score", "seed")) == 5  # three paired seeds, and two where one has no score
    assert len(page.marks("scores", "seed")) == 8
