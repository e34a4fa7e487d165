"""What the terminal shows: every seed, dashes for what is missing, verdict words, and no markup from the file."""

from io import StringIO

import pytest
from rich.console import Console

from coterie.report.results import worst_cut
from coterie.report.terminal import comparisons_table, print_results, results_table, verdict_lines


def show(part, width=120):
    console = Console(width=width, record=True, file=StringIO())
    console.print(part)
    return console.export_text()


def line(text, start):
    return next(row.split() for row in text.splitlines() if row.startswith(start))


def test_every_seed_stands_beside_the_mean(results):
    text = show(results_table(results))
    assert "team reward on 300 held-out tasks" in text
    assert line(text, "chat  ") == ["chat", "0.298", "0.403", "0.145", "0.347", "0.170"]
    assert line(text, "off (baseline)")[2:] == ["0.029", "0.037", "0.025", "0.024", "0.030"]


def test_missing_values_are_dashes_and_empty_columns_are_left_out(results):
    text = show(results_table(results))
    assert line(text, "chat, no reply  ")[3:] == ["0.125", "0.110", "0.140", "–", "0.100"]
    assert "A base" in text
    for arm in results["arms"].values():
        for run in arm["seeds"].values():
            run.update(cross_play=None, measures=None, before=None, minutes=None)
    bare = show(results_table(results))
    for head in ("A base", "shared", "cut", "untrained", "train min"):
        assert head not in bare


def test_text_of_the_file_is_not_markup(results):
    assert "[bold]one[/bold] message each" in show(results_table(results))
    results["comparisons"][0]["arm"] = results["comparisons"][0]["sentence"] = "[/red]"
    assert "[/red]" in show(comparisons_table(results))
    assert verdict_lines(results)[0].plain == "[/red]"


def test_comparisons(results):
    text = show(comparisons_table(results))
    assert "against off" in text
    assert line(text, "chat  ") == ["chat", "+0.269", "-0.056", "to", "+0.595", "0.14", "3", "0.428", "unresolved"]


def test_a_comparison_of_one_seed_has_no_interval(results):
    results["comparisons"] = [
        {"arm": "chat", "baseline": "off", "delta": 0.3, "interval": None, "p": None, "n": 1, "verdict": "unresolved"},
        {"arm": "chat", "baseline": "solo", "delta": -0.3, "interval": [-0.4, -0.2], "n": 2, "paired": False, "verdict": "moved"},
    ]
    text = show(comparisons_table(results))
    off, solo = text.split("against solo")
    assert line(off, "chat") == ["chat", "+0.300", "–", "–", "1", "–", "unresolved"]
    assert line(solo, "chat") == ["chat", "-0.300", "-0.400", "to", "-0.200", "–", "2", "unpaired", "–", "moved"]
    assert [said.plain for said in verdict_lines(results)] == ["chat against off: unresolved.", "chat against solo: moved."]


@pytest.mark.parametrize(
    ("measures", "cut"),
    [
        ({"cut": {"0": 0.5, "1": None}}, 0.5),
        ({"cut": 0.2, "cut_by_turn": {"0": 0.1, "1": 0.4}}, 0.4),
        ({"cut": 0.2}, 0.2),
        ({"cut": 0.2, "cut_by_turn": {}}, 0.2),
        ({"cut": None}, None),
        (None, None),
    ],
)
def test_cut_is_that_of_the_worst_turn(measures, cut):
    assert worst_cut({"measures": measures}) == cut


def test_grader_failures_are_counted_and_shown(results):
    assert "grader failed" not in show(results_table(results))
    results["arms"]["chat"]["seeds"]["17"]["grading_errors"] = 3
    text = show(results_table(results))
    assert "grader failed" in text
    assert line(text, "chat  ")[-1] == "3"
    assert line(text, "off")[-1] == "0"


def test_verdict_lines_carry_the_sentences(results):
    said = verdict_lines(results)
    assert said[0].plain == results["comparisons"][0]["sentence"]
    assert [span.style for span in said[0].spans] == ["bold yellow"]
    results["comparisons"] = []
    assert "Nothing was compared" in verdict_lines(results)[0].plain


@pytest.mark.parametrize("width", [80, 120])
def test_figures_are_whole_at_any_width(results, width):
    console = Console(width=width, record=True, file=StringIO())
    print_results(results, console)
    text = console.export_text()
    assert "…" not in text
    assert "Do two copies" in text


def test_more_than_eight_seeds_wrap_and_none_is_hidden(results):
    results["arms"]["chat"]["seeds"] = {str(seed): {"score": seed / 100} for seed in range(10, 30)}
    text = show(results_table(results), width=80)
    for seed in range(10, 30):
        assert f"{seed}: 0.{seed}0" in " ".join(text.split())


@pytest.mark.parametrize("empty", [{}, {"arms": {}}, {"arms": {"off": {"seeds": {}}}}, {"arms": {"off": {"seeds": {"1": None}}}}])
def test_an_empty_file_is_no_error(empty):
    assert show(results_table(empty)) is not None
    assert show(comparisons_table(empty)) is not None
