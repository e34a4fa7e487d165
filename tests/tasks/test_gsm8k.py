import json
import sys
import types

import pytest

from coterie.tasks.gsm8k import gold, load_gsm8k
from coterie.tasks.overlap import check_overlap
from coterie.types import CoterieError

from .test_split_facts import GSM8K

needs_data = pytest.mark.skipif(not GSM8K.is_dir(), reason="no GSM8K: set COTERIE_SHARED to a folder that holds data/gsm8k")


def record(i, answer="#### 7"):
    return {"question": f"Ann has {i} pens. Bob has 4. How many?", "answer": answer}


@pytest.fixture
def folder(tmp_path):
    def write(train, test):
        for name, records in (("train", train), ("test", test)):
            text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
            (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
        return str(tmp_path)

    return write


@needs_data
def test_the_published_ids_and_counts():
    tasks = load_gsm8k(str(GSM8K), train=1024, held_out=300)
    assert [task.id for task in tasks.held_out[:6]] == ["test-3", "test-4", "test-5", "test-6", "test-7", "test-12"]
    assert [task.id for task in tasks.train[:6]] == ["train-0", "train-1", "train-2", "train-4", "train-5", "train-10"]
    assert (len(tasks.train), len(tasks.held_out)) == (1024, 300)
    assert all(set(task.private) == {"A", "B"} and float(task.answer) == float(task.answer) for task in tasks.train)
    check_overlap(tasks)


@needs_data
def test_all_of_it_and_one_more():
    tasks = load_gsm8k(str(GSM8K), train=3782, held_out=693)
    assert len({task.id for task in (*tasks.train, *tasks.held_out)}) == 3782 + 693
    check_overlap(tasks)
    with pytest.raises(CoterieError, match=r"test.jsonl has 693 usable tasks but tasks.held_out asks for 694; ask for at most 693"):
        load_gsm8k(str(GSM8K), train=1, held_out=694)


@needs_data
def test_without_seats_nothing_is_split():
    tasks = load_gsm8k(str(GSM8K), train=3, held_out=3, seats=())
    assert [task.id for task in tasks.held_out] == ["test-0", "test-1", "test-2"]
    assert all(task.ask == task.question and not task.private for task in tasks.train)
    assert tasks.skipped == 0


@pytest.mark.parametrize(("answer", "value"), [("a\n#### 1,800 ", "1800"), ("#### 1 #### 2", "2"), ("18", None), ("####  ", None)])
def test_gold(answer, value):
    assert gold(answer) == value


def test_the_seed_changes_the_order(folder):
    path = folder([record(i) for i in range(50)], [record(i) for i in range(50)])
    one, same, other = (load_gsm8k(path, 20, 20, seed) for seed in (0, 0, 1))
    assert one == same
    assert [task.question for task in one.train] != [task.question for task in other.train]
    assert [task.id for task in one.train] == [f"train-{i}" for i in range(20)]


def test_skipped_problems_keep_their_number(folder):
    rejected = {"question": "Ann has pens. How many?", "answer": "#### 1"}
    tasks = load_gsm8k(folder([record(0)], [rejected, rejected, record(1)]), 1, 1)
    assert (tasks.held_out[0].id == "test-0") == (tasks.skipped == 0)
    assert tasks.held_out[0].id == f"test-{tasks.skipped}"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", r"train.jsonl, line 2: not a JSON object"),
        ("[1]", r"train.jsonl, line 2: a GSM8K problem needs the text fields question and answer"),
        ('{"question": "Q?"}', r"train.jsonl, line 2: a GSM8K problem needs"),
        (json.dumps(record(1, "18")), r"train.jsonl, line 2: the answer has nothing after '####'"),
    ],
)
def test_a_broken_line_is_named(folder, line, message):
    with pytest.raises(CoterieError, match=message):
        load_gsm8k(folder([record(0), line], [record(0)]), 2, 1)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(CoterieError, match=r"nowhere.train.jsonl cannot be read .*set tasks.path"):
        load_gsm8k(str(tmp_path / "nowhere"), 1, 1)


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CoterieError, match=r"pip install 'coterie\[data\]', or set tasks.path"):
        load_gsm8k(None, 1, 1)


def test_the_hub(monkeypatch):
    calls = []

    def load_dataset(name, config, split):
        calls.append((name, config, split))
        return [record(i) for i in range(5)]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    tasks = load_gsm8k(None, 2, 2)
    assert calls == [("openai/gsm8k", "main", "train"), ("openai/gsm8k", "main", "test")]
    assert [task.id for task in tasks.held_out] == ["test-0", "test-1"]


def test_an_unreachable_hub_is_said(monkeypatch):
    def load_dataset(*args, **kwargs):
        raise ConnectionError("no\nroute")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(
        CoterieError, match=r"openai/gsm8k could not be downloaded \(ConnectionError: no route\); check the network or set"
    ):
        load_gsm8k(None, 1, 1)
