import json
import sys
import types

import numpy as np
import pytest

from coterie.tasks.math import load_math
from coterie.tasks.overlap import check_overlap
from coterie.types import CoterieError

from .test_split_facts import SHARED

MATH = SHARED / "data" / "math"
needs_data = pytest.mark.skipif(
    not (MATH / "math500.json").is_file(), reason="no MATH-500: set COTERIE_SHARED to a folder that holds data/math"
)


def train_row(i, level="Level 3", solution=None):
    return {"problem": f"What is {i} + 0?", "level": level, "solution": solution or rf"It is $\boxed{{{i}}}$."}


def held_row(i, level=3):
    return {"problem": f"What is {i} - 0?", "level": level, "answer": str(i), "unique_id": f"test/sums/{i}.json", "solution": ""}


@pytest.fixture
def folder(tmp_path):
    """Write train.jsonl, test.jsonl and math500.json, each where it is given."""

    def write(train=None, test=None, whole=None):
        for name, records in (("train", train), ("test", test)):
            if records is not None:
                text = "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records)
                (tmp_path / f"{name}.jsonl").write_text(text, encoding="utf-8")
        if whole is not None:
            (tmp_path / "math500.json").write_text(whole if isinstance(whole, str) else json.dumps(whole), encoding="utf-8")
        return str(tmp_path)

    return write


def ids(tasks):
    return [task.id for task in tasks]


@needs_data
def test_math500_alone_gives_the_published_held_out_set_and_trains_on_the_rest():
    """The order is NumPy's permutation of the problems of level 3 to 5, which is what `Dataset.filter(…).shuffle(seed=0)` makes."""
    records = [r for r in json.loads((MATH / "math500.json").read_text(encoding="utf-8")) if r["level"] >= 3]
    assert len(records) == 367
    order = [f"math500-{records[i]['unique_id']}" for i in np.random.default_rng(0).permutation(367)]
    tasks = load_math(str(MATH), train=67, held_out=300)
    assert ids(tasks.held_out) == order[:300]
    assert ids(tasks.train) == order[300:]
    assert tasks.skipped == 0
    check_overlap(tasks)
    with pytest.raises(CoterieError, match=r"without its held-out tasks has 67 usable tasks but tasks.train asks for 68"):
        load_math(str(MATH), train=68, held_out=300)


@needs_data
def test_the_gold_answer_of_a_train_problem_is_what_its_authors_take_out_of_the_solution(folder):
    """MATH-500 has both the solution and the answer: an oracle for reading the last box. Breaks with the first box, or at `}`."""
    records = json.loads((MATH / "math500.json").read_text(encoding="utf-8"))
    path = folder([{k: v for k, v in r.items() if k != "answer"} for r in records], [held_row(1)])
    tasks = load_math(path, train=500, held_out=1, levels=(1, 2, 3, 4, 5))
    answers = {r["problem"]: r["answer"] for r in records}
    assert {task.question: task.answer for task in tasks.train} == answers


def test_levels_are_filtered_before_the_shuffle_and_written_in_two_ways(folder):
    train = [train_row(i, level) for i, level in enumerate([1, "Level 3", "Level ?", 5, "Level 2", "Level 4"])]
    tasks = load_math(folder(train, [held_row(7, "Level 5"), held_row(8, 2)]), train=3, held_out=1)
    assert {task.answer for task in tasks.train} == {"1", "3", "5"}
    assert [task.answer for task in tasks.train] == [("1", "3", "5")[i] for i in np.random.default_rng(0).permutation(3)]
    assert ids(tasks.train) == ["train-0", "train-1", "train-2"]
    assert ids(tasks.held_out) == ["math500-test/sums/7.json"]
    assert all(task.ask == task.question and not task.private for task in (*tasks.train, *tasks.held_out))
    assert {task.answer for task in load_math(folder(train, [held_row(7, 1)]), 1, 1, levels=(1,)).train} == {"0"}


def test_problems_without_a_box_are_skipped_and_counted_and_keep_their_number(folder):
    train = [
        train_row(0),
        train_row(1, solution="It is 1."),
        train_row(2, solution=r"\boxed{ }"),
        train_row(3, solution=r"\boxed{1} \boxed{9}"),
    ]
    tasks = load_math(folder(train, [held_row(1)]), train=2, held_out=1)
    places = {int(i): place for place, i in enumerate(np.random.default_rng(0).permutation(4))}
    assert sorted(ids(tasks.train)) == sorted([f"train-{places[0]}", f"train-{places[3]}"])
    assert {task.answer for task in tasks.train} == {"0", "9"}
    assert tasks.skipped == sum(places[i] < max(places[0], places[3]) for i in (1, 2))


def test_a_train_problem_that_is_also_in_the_500_is_never_trained_on(folder):
    """Planted duplicates: one of a held-out task, one of a problem of a level that is not even scored. Both in another spelling."""
    planted = [{**train_row(100 + i), "problem": f"what is {i} − 0 ?"} for i in (1, 2)]
    test = [held_row(1), held_row(2, level=1), held_row(3)]
    tasks = load_math(folder([train_row(0), *planted], test), train=1, held_out=2)
    assert [task.answer for task in tasks.train] == ["0"]
    check_overlap(tasks)
    with pytest.raises(CoterieError, match=r"train.jsonl has 1 usable tasks but tasks.train asks for 2"):
        load_math(folder([train_row(0), *planted], test), train=2, held_out=2)


def test_the_file_with_the_500_serves_beside_a_train_file(folder):
    tasks = load_math(folder([train_row(i) for i in range(4)], whole=[held_row(i) for i in range(4)]), train=4, held_out=4)
    assert {task.id.split("-")[0] for task in tasks.train} == {"train"}
    assert {task.id.split("-")[0] for task in tasks.held_out} == {"math500"}


def test_how_many_are_held_out_does_not_change_the_train_tasks(folder):
    path = folder([train_row(i) for i in range(9)], [held_row(i) for i in range(9)])
    assert load_math(path, 5, 2).train == load_math(path, 5, 8).train


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train": [train_row(0), "{broken"], "test": [held_row(0)]}, r"train.jsonl, line 2: not a JSON object"),
        ({"train": [train_row(0)], "test": ["[1]"]}, r"test.jsonl, problem 1: a MATH problem needs a level from 1 to 5"),
        ({"train": [train_row(0, "Level 6")], "test": [held_row(0)]}, r"train.jsonl, problem 1: .*level from 1 to 5, written 3 or"),
        (
            {"train": [{"problem": "Q", "level": 3}], "test": [held_row(0)]},
            r"problem 1: .* text fields problem, solution; use the files",
        ),
        ({"train": [train_row(0)], "test": [{"problem": "Q", "level": 3, "answer": 3}]}, r"fields problem, answer, unique_id"),
        ({"whole": "{}"}, r"math500.json: not a list of problems"),
        ({"whole": "[}"}, r"math500.json: not a JSON object"),
        ({"train": [train_row(0)]}, r"test.jsonl cannot be read .* holds train.jsonl and test.jsonl \(or math500.json\) of MATH"),
        ({"test": [held_row(0)]}, r"train.jsonl cannot be read"),
    ],
)
def test_a_broken_file_is_named(folder, files, message):
    with pytest.raises(CoterieError, match=message) as caught:
        load_math(folder(**files), 1, 1)
    assert "\n" not in str(caught.value)


def test_the_hub(monkeypatch):
    calls = []

    def load_dataset(name, config, split):
        calls.append((name, config, split))
        return [train_row(i) for i in range(5)] if split == "train" else [held_row(i) for i in range(5)]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    tasks = load_math(None, 2, 2)
    assert calls == [("DigitalLearningGmbH/MATH-lighteval", None, "train"), ("HuggingFaceH4/MATH-500", None, "test")]
    assert ids(tasks.train) == ["train-0", "train-1"]


def test_without_the_package_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CoterieError, match=r"MATH without tasks.path .*pip install 'coterie\[data\]', or set tasks.path"):
        load_math(None, 1, 1)
