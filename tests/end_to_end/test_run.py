"""The whole way through: recipe to verdict, with the files that it leaves."""

import json
import sys

import pytest

from coterie.assemble import write_script
from coterie.cli import main
from coterie.recipe import load_recipe, resolve
from coterie.types import POLICY, CoterieError
from tests.end_to_end.conftest import SMALL


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run the command line in this process; returns its exit code, and standard output and error in one text."""

    def call(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["coterie", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code, " ".join((out + err).split())

    return call


def small(*words):
    return ["run", "talk-to-solve", *words, *[w for s in SMALL for w in ("--set", s)]]


def test_run_compare_eval_and_chat(cli, tmp_path):
    out = tmp_path / "runs"
    code, text = cli(*small("--seeds", "17", "18", "--steps", "2", "--out", out))
    assert code == 0, text
    results = json.loads((out / "results.json").read_text())
    assert set(results["arms"]) == {"off", "chat"}
    for arm in results["arms"].values():
        assert set(arm["seeds"]) == {"17", "18"}
        for run in arm["seeds"].values():
            assert run["held_out"] == 4
            assert {"shared", "used", "asked", "agree", "message_chars", "cut_by_turn"} <= run["measures"].keys()
            assert set(run["cross_play"]) == {"A=policy,B=base", "A=base,B=policy"}
            assert [step for step, _ in run["curve"]] == [1, 2]
            assert run["before"]["score"] is not None
    (comparison,) = results["comparisons"]
    assert (comparison["arm"], comparison["baseline"], comparison["n"]) == ("chat", "off", 2)
    assert comparison["verdict"] in text
    assert results["checks"].keys() == {"off-seed17", "off-seed18", "chat-seed17", "chat-seed18"}
    faults = [check for of_run in results["checks"].values() for check in of_run if check["status"] == "fault"]
    assert ("found something" in text) == bool(faults)
    assert results["over_chance"]["chat"]["off"] == "off"
    assert (out / "learning-curves.png").read_bytes().startswith(b"\x89PNG")
    run = out / "chat-seed17"
    assert {"config.toml", "run.json", "metrics.jsonl", "episodes.jsonl", "evaluation.jsonl", "result.json"} <= {
        p.name for p in run.iterdir()
    }
    record = json.loads((run / "result.json").read_text())
    assert record["versions"]["torch"]
    assert len(record["per_task"]) == 4
    line = json.loads((run / "episodes.jsonl").read_text().splitlines()[0])
    assert [m["seat"] for m in line["messages"]] == ["A", "B", "A", "B"]
    assert all(m["player"] == POLICY and "advantage" in m for m in line["messages"])

    before = (run / "result.json").stat().st_mtime_ns
    code, text = cli(*small("--seeds", "17", "18", "--steps", "2", "--out", out))
    assert code == 0
    assert "6 of 6 runs are finished already" in text
    assert (run / "result.json").stat().st_mtime_ns == before

    code, text = cli("compare", out)
    assert code == 0
    assert comparison["verdict"] in text

    kept = tmp_path / "kept"
    assert cli("compare", out, "--records", kept)[0] == 0
    assert sorted(p.name for p in kept.iterdir()) == [
        "chat-seed17.json", "chat-seed18.json", "chat-untrained.json", "off-seed17.json", "off-seed18.json", "off-untrained.json"
    ]  # fmt: skip
    assert cli("compare", kept)[1] == text
    assert cli("compare", out, "--records", kept)[0] == 0
    (kept / "off-seed17.json").write_text((kept / "off-seed18.json").read_text())
    code, text = cli("compare", out, "--records", kept)
    assert (code, "off-seed17.json holds another record" in text) == (2, True)

    code, text = cli("eval", run, "--set", "evaluate.sampling.temperature=0", "--name", "greedy")
    assert code == 0
    greedy = json.loads((run / "evaluations" / "greedy.json").read_text())
    assert greedy["sampling"]["evaluate"]["temperature"] == 0
    code, text = cli("eval", run, "--name", "greedy")
    assert (code, "exists; choose another --name" in text) == (2, True)

    code, text = cli("chat", "talk-to-solve", "--run", run, "--task", "1")
    assert code == 0
    assert "A knows:" in text
    assert "the answer is" in text

    code, text = cli("run", "talk-to-solve", "--steps", "3", "--arm", "chat", "--seeds", "17", "--out", out)
    assert code == 2
    assert "holds a run of another configuration (other " in text
    assert "choose another folder with --out" in text


def test_a_run_scores_what_eval_scores_again(cli, tmp_path):
    """The checkpoint on disk is the policy that was scored: the same noise gives the same episodes."""
    out = tmp_path / "runs"
    assert cli(*small("--arm", "chat", "--seeds", "17", "--steps", "2", "--out", out))[0] == 0
    assert cli("eval", out / "chat-seed17")[0] == 0
    again = json.loads((out / "chat-seed17" / "evaluations" / "again.json").read_text())
    first = json.loads((out / "chat-seed17" / "result.json").read_text())
    assert again["per_task"] == first["per_task"]
    assert again["measures"] == first["measures"]


BAD = [
    (["run", "talk-to-slove"], "the path of a recipe.toml works too; did you mean talk-to-solve?"),
    (["run", "talk-to-solve", "--arm", "chta"], "no arm chta; it has off, chat; did you mean chat?"),
    (["run", "talk-to-solve", "--profile", "pokcet"], "no profile pokcet; it has pocket, qwen-1.5b, laptop; did you mean pocket?"),
    (["run", "talk-to-solve", "--set", "train.lr=1"], "train.lr is not a setting"),
    (["run", "talk-to-solve", "--sed", "17"], "--sed"),
    (["run", "talk-to-solve", "--steps", "x"], "--steps"),
    (["run", "talk-to-solve", "--workers", "0"], "--workers 0: give 1 or more"),
    (["run", "talk-to-solve", "--model", "./nowhere"], "there is no folder ./nowhere"),
    (
        ["run", "talk-to-solve", "--set", "protocol.final_tokens=100000"],
        "protocol.final_tokens = 100000 is not smaller than the model's context",
    ),
    (["run", "talk-to-solve", "--set", "tasks.kind=jsonl", "--set", "tasks.path=nowhere.jsonl"], "nowhere.jsonl cannot be read"),
    (["run", "talk-to-solve", "--set", "tasks.kind=gsm8k", "--set", "tasks.path=nowhere"], "nowhere"),
    (["run", "talk-to-solve", "--set", "model.device=tpu"], "model.device"),
    (
        ["run", "talk-to-solve", "--arm", "chat", "--set", "credit.kind=own_and_readers"],
        'pays a note for its own answer, and protocol.kind = "chat" does not grade the message of seat A (turn 0); use',
    ),
    (["run", "talk-to-solve", "--set", "tasks.kind=math"], 'tasks.kind = "math" is not split into facts'),
    (["run", "board-writers", "--set", "protocol.ring=5"], "protocol.ring = 5 is more notes than protocol.copies = 4 write"),
    (["run", "portable-talk", "--arm", "base", "--set", "cast.partner=nowhere"], "partner nowhere: neither a run folder"),
    (["run", "talk-to-solve", "--set", 'evaluate.partners=["nowhere"]'], "partner nowhere: neither a run folder"),
    (
        ["run", "talk-to-solve", "--set", 'cast={kind="mixed_partners", seats=["Z"]}'],
        "cast.seats: there is no seat Z; this protocol has A, B",
    ),
    (["run", "talk-to-solve", "--plugin", "nowhere.py"], "nowhere.py: there is no such file; give a Python file"),
    (["settings", "trian"], "no setting begins with trian; `coterie settings` lists all; did you mean train?"),
    (["crossplay", ".", "--arm", "chat"], "holds no finished run of arm chat; finish one with coterie run"),
    (["crossplay", "."], "--arm requires an argument. See `coterie crossplay --help`."),
    (["compare", "."], "holds no finished run; finish one with coterie run"),
    (["compare", "nowhere"], "nowhere: there is no such folder"),
    (["eval", "nowhere"], "nowhere: not a run folder"),
    (["chat", "talk-to-solve", "--task", "100000"], "held-out tasks, counted from 0"),
]


@pytest.mark.parametrize(("words", "message"), BAD, ids=[" ".join(words[1:]) for words, _ in BAD])
def test_bad_input_is_one_sentence_and_exit_code_2(cli, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    code, text = cli(*words)
    assert code == 2, text
    assert message in text
    assert "Traceback" not in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("protocol", "graded"),
    [("board", True), ("debate", True), ("solo", True), ("team", True), ("chat", False)],
)
def test_a_rule_that_pays_notes_for_their_own_answers_needs_them_graded(protocol, graded):
    """Known before anything starts. A protocol without notes has none that is not graded."""
    sets = {"protocol": {"kind": protocol}, "credit": {"kind": "own_and_readers"}, "tasks": {"train": 4, "held_out": 2}}
    config = resolve(load_recipe("talk-to-solve"), profile="pocket", arm="chat", seed=1, overrides=sets)
    if graded:
        write_script(config)
    else:
        with pytest.raises(CoterieError, match=f'protocol.kind = "{protocol}" does not grade the message of seat'):
            write_script(config)


def task_line(n, **changes):
    line = {
        "question": f"Tom has {n} apples. Sue has 5 more. How many in all?",
        "answer": str(2 * n + 5),
        "facts": {"A": [f"Tom has {n} apples."], "B": ["Sue has 5 more."]},
        "ask": "How many in all?",
    }
    return json.dumps({**line, **changes})


def run_tasks(cli, path, *more):
    sets = [
        f"tasks.path={path}",
        "tasks.kind=jsonl",
        "train.tasks_per_step=2",
        "protocol.message_tokens=24",
        "protocol.final_tokens=24",
        *more,
    ]
    out = path.parent / "out"
    return cli(
        "run",
        "talk-to-solve",
        "--arm",
        "chat",
        "--seeds",
        "17",
        "--steps",
        "1",
        "--out",
        out,
        *[w for s in sets for w in ("--set", s)],
    )


def test_a_user_s_own_tasks(cli, tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(task_line(n) for n in range(20)))
    code, text = run_tasks(cli, path)
    assert code == 0, text
    assert json.loads((tmp_path / "out" / "chat-seed17" / "result.json").read_text())["held_out"] == 2


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([task_line(1), task_line(2), "{broken"], "mine.jsonl, line 3"),
        ([task_line(1), task_line(2, facts={"A": ["Tom has 2."]})], "mine.jsonl, line 2: no facts for seat B"),
        ([task_line(1), task_line(2, anwser=1)], "mine.jsonl, line 2"),
        ([task_line(1), task_line(2, facts={"A": ["word " * 600], "B": ["5"]})], "do not fit the model's context of 512 tokens"),
    ],
)
def test_bad_task_files(cli, tmp_path, lines, message):
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(lines))
    code, text = run_tasks(cli, path)
    assert code == 2, text
    assert message in text
    assert not (tmp_path / "out").exists()


def test_sets_that_overlap_are_refused(cli, tmp_path):
    path, held_out = tmp_path / "mine.jsonl", tmp_path / "held.jsonl"
    path.write_text("\n".join(task_line(n) for n in range(6)))
    held_out.write_text(task_line(3, question="TOM has 3 apples.  Sue has 5 more. How many in all?"))
    code, text = run_tasks(cli, path, f"tasks.held_out_path={held_out}")
    assert code == 2
    assert "train-4" in text
    assert "held-out-1" in text
    assert not (tmp_path / "out").exists()


def test_a_model_without_a_tokenizer(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    code, text = cli("run", "talk-to-solve", "--profile", "pocket", "--model", "model")
    assert code == 2
    assert "holds no tokenizer (tokenizer.json)" in text
    assert not (tmp_path / "runs").exists()


def test_a_folder_of_something_else_is_left_alone(cli, tmp_path):
    (tmp_path / "chat-seed17").mkdir()
    (tmp_path / "chat-seed17" / "thesis.txt").write_text("mine")
    code, text = cli("run", "talk-to-solve", "--arm", "chat", "--seeds", "17", "--out", tmp_path)
    assert code == 2
    assert "is not empty and holds no run" in text
    assert [p.name for p in tmp_path.rglob("*")] == ["chat-seed17", "thesis.txt"]
