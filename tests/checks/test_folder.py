"""Checks of folders: of records made by hand, and of a tiny experiment that is really played."""

import io
import json

import pytest
from rich.console import Console

from coterie.checks import CHECKS, as_json, check_folder
from coterie.experiment import prepare, write_results
from coterie.running import report_checks
from coterie.types import CoterieError
from coterie.worker import play_run
from tests.checks.sample import BEFORE, OFF, PLAIN, RUN, SOUND, measured
from tests.commands import cli  # noqa: F401 (a fixture)
from tests.end_to_end.conftest import small_plan  # noqa: F401 (a fixture)

LOOPED = {**PLAIN, "messages": [{**m, "text": "We have pens. " * 10} for m in PLAIN["messages"]]}


def write(folder, record=None, metrics=(), conversations=()):
    folder.mkdir()
    (folder / "config.toml").write_text("")
    if record:
        (folder / "result.json").write_text(json.dumps(record))
    for name, lines in (("metrics", metrics), ("evaluation", conversations)):
        if lines:
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "chat-seed17", RUN, SOUND.metrics, SOUND.conversations)
    write(tmp_path / "off-seed17", OFF)
    write(tmp_path / "chat-untrained", BEFORE, conversations=SOUND.conversations)
    return tmp_path


def statuses(found):
    return {check.name: check.status for check in found}


def test_every_file_of_a_run_is_read(folder):
    found = check_folder(folder)
    assert found.keys() == {"chat-seed17", "off-seed17"}
    assert statuses(found["chat-seed17"]) == dict.fromkeys(CHECKS, "ok")
    off = statuses(found["off-seed17"])  # there is no off-untrained, and no file beside its record
    assert {name for name, status in off.items() if status == "unknown"} == {
        "noise floor", "reward and score", "length", "box", "degenerate text"
    }  # fmt: skip
    assert check_folder(folder / "chat-seed17") == {"chat-seed17": found["chat-seed17"]}


def test_what_the_untrained_model_did_is_taken_off(folder):
    (folder / "chat-seed17" / "evaluation.jsonl").write_text(json.dumps(LOOPED) + "\n")
    assert statuses(check_folder(folder)["chat-seed17"])["degenerate text"] == "fault"
    (folder / "chat-untrained" / "evaluation.jsonl").write_text(json.dumps(LOOPED) + "\n")
    assert statuses(check_folder(folder)["chat-seed17"])["degenerate text"] == "ok"


def test_an_unfinished_run_is_unknown_but_for_its_metrics(folder):
    (folder / "chat-seed17" / "result.json").unlink()
    found = statuses(check_folder(folder)["chat-seed17"])
    assert found == {**dict.fromkeys(CHECKS, "unknown"), "grading": "ok", "degenerate text": "ok"}


def test_committed_records(tmp_path):
    for record, name in ((measured(RUN, boxed=0.1), "chat-seed17"), (OFF, "off-seed17"), (BEFORE, "chat-untrained")):
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    found = statuses(check_folder(tmp_path)["chat-seed17"])
    assert (found["box"], found["channel off"], found["degenerate text"]) == ("fault", "ok", "unknown")


def test_a_folder_without_runs_is_refused(tmp_path, folder):
    (tmp_path / "none").mkdir()
    for where in (tmp_path / "none", folder / "chat-untrained", tmp_path / "nowhere"):
        with pytest.raises(CoterieError, match="holds no trained run; give"):
            check_folder(where)
    (folder / "chat-seed17" / "result.json").write_text("{}")
    with pytest.raises(CoterieError, match=r"result\.json: not the record of a run"):
        check_folder(folder)


def test_the_command(cli, folder):  # noqa: F811
    code, text = cli("check", folder, "--strict")
    assert (code, "0 faults, in 0 of 2 runs" in text) == (0, True)
    (folder / "chat-seed17" / "result.json").write_text(json.dumps(measured(RUN, boxed=0.1)))
    assert cli("check", folder)[0] == 0
    code, text = cli("check", folder, "--strict")
    assert (code, "1 fault, in 1 of 2 runs" in text) == (1, True)
    code, text = cli("check", folder / "chat-seed17", "--json")
    assert (code, json.loads(text)) == (0, as_json(check_folder(folder / "chat-seed17")))


def test_a_run_says_in_one_line_that_checks_found_something(tmp_path):
    def said(checks):
        text = io.StringIO()
        report_checks({"checks": checks}, tmp_path / "out", Console(file=text, width=200))
        return text.getvalue()

    ok, fault = {"name": "box", "status": "ok", "said": ""}, {"name": "box", "status": "fault", "said": ""}
    assert said({"a-seed1": [ok, ok], "b-seed1": [ok]}) == ""
    line = f"3 checks of 2 runs found something; `coterie check {tmp_path / 'out'}` shows them\n"
    assert said({"a-seed1": [fault, fault], "b-seed1": [ok], "c-seed1": [fault]}) == line


def test_a_run_that_is_played_leaves_what_the_checks_need(small_plan, tmp_path):  # noqa: F811
    made = small_plan(tmp_path / "runs", "evaluate.cross_play=false", steps=1)
    for job in prepare(made, resume=False):
        play_run(job.folder)
    results = write_results(made.recipe, made.out)
    assert json.loads((made.out / "results.json").read_text()) == results
    assert results["checks"] == as_json(check_folder(made.out))
    known = {check["name"]: check["status"] for check in results["checks"]["chat-seed17"]}
    assert {name for name, status in known.items() if status == "unknown"} == {"reward and score", "channel off"}  # 1 step, 1 arm
    assert (known["sampler"], known["grading"]) == ("ok", "ok")
    assert results["over_chance"] == {}

    before = json.loads((made.out / "chat-untrained" / "result.json").read_text())
    assert (len(before["repeats"]), before["repeats"][0]) == (3, before["score"])
    trained = json.loads((made.out / "chat-seed17" / "result.json").read_text())
    assert "repeats" not in trained
    assert 0 <= trained["measures"]["unheard"] <= 1
    told = json.loads((made.out / "chat-seed17" / "evaluation.jsonl").read_text().splitlines()[0])
    assert all(fact in told["question"] for facts in told["facts"].values() for fact in facts)
    assert told["question"].endswith(told["ask"])


def test_lines_that_are_no_conversations_are_passed_over(folder):
    before = statuses(check_folder(folder)["chat-seed17"])
    with open(folder / "chat-seed17" / "evaluation.jsonl", "a") as file:
        for odd in ([], {}, {"messages": "text"}, {"messages": [{"text": None}]}, {"messages": [3]}):
            file.write(json.dumps(odd) + "\n")
    assert statuses(check_folder(folder)["chat-seed17"]) == before
