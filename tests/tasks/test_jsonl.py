import json
import logging
import random

import pytest

from coterie.tasks.jsonl import load_jsonl
from coterie.tasks.overlap import check_overlap, normalise
from coterie.types import CoterieError

GOOD = {
    "question": "Ann has 3. Bob has 4. How many?",
    "answer": "7",
    "facts": {"A": ["Ann has 3."], "B": ["Bob has 4."]},
    "ask": "How many?",
}


def without(*keys, **changes):
    return {key: value for key, value in GOOD.items() if key not in keys} | changes


def numbered(n):
    return [without(question=f"Ann has {i}. Bob has 4. How many?", id=f"q{i}") for i in range(n)]


@pytest.fixture
def write(tmp_path):
    def write(lines, name="tasks.jsonl"):
        file = tmp_path / name
        parts = [
            line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode() for line in lines
        ]
        file.write_bytes(b"\n".join(parts))
        return str(file)

    return write


def test_facts_and_ask_as_given(write):
    (task,) = load_jsonl(write([without(id="mine", answer=18.50)]), None, 1, 0).train
    assert (task.id, task.question, task.answer, task.ask) == ("mine", GOOD["question"], "18.5", "How many?")
    assert task.private == {"A": ("Ann has 3.",), "B": ("Bob has 4.",)}


def test_the_split_rule_fills_in_and_numbers_stay_as_written(write):
    line = '{"question": "Ann has 3. Bob has 4. How many?", "answer": 18.50}'
    (task,) = load_jsonl(write([line]), None, 1, 0).train
    assert (task.id, task.answer, task.private["B"]) == ("task-1", "18.50", ("Bob has 4.",))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", r"not valid JSON \(.*column 2\); write one JSON object a line"),
        ("[1, 2]", r"is a list, not a JSON object"),
        ("18", r"is a number, not a JSON object"),
        ("null", r"is null, not a JSON object"),
        ("[" * 100_000, r"is nested too deeply"),
        ('{"question": "a", "question": "b"}', r"the key 'question' stands twice"),
        (without("question"), r"the key 'question' is missing"),
        (without("answer"), r"the key 'answer' is missing"),
        (without(question=3), r"'question' is a number; write a text$"),
        (without(question=" "), r"'question' is empty"),
        (without(answer=None), r"'answer' is null; write a text or a number"),
        (without(answer=True), r"'answer' is true or false"),
        ('{"question": "a", "answer": NaN}', r"'answer' is not a finite number"),
        (without(answer=["7"]), r"'answer' is a list"),
        (without(id=""), r"'id' is empty"),
        (without(ask=["x"]), r"'ask' is a list"),
        (without("ask"), r"has the key 'facts' but no 'ask'"),
        (without("facts"), r"has the key 'ask' but no 'facts'"),
        (without(gold="7"), r"unknown key 'gold'; the keys are question, answer, facts, ask, id"),
        (without(facts=["a", "b"]), r"'facts' is a list; write an object from seat"),
        (without(facts={"A": ["x"], "B": []}), r"the facts of seat B are an empty list"),
        (without(facts={"A": ["x"], "B": "y"}), r"the facts of seat B must be a list of texts"),
        (without(facts={"A": ["x"], "B": [""]}), r"the facts of seat B must be a list of texts"),
        (without(facts={"A": ["x"], "B": [3]}), r"the facts of seat B must be a list of texts"),
        (without(facts={"A": ["x"]}), r"no facts for seat B; the protocol's seats are A, B"),
        (without(facts={"A": ["x"], "B": ["x"], "C": ["x"]}), r"facts for seat C, but the protocol's seats are A, B"),
        (without("facts", "ask", question="Ann has 3."), r"the question has no sentence that ends in a question mark; give facts"),
        (b'{"question": "caf\xe9"}', r"byte 18 is not UTF-8; save the file as UTF-8"),
        (without(question="\ud800"), r"holds half of a surrogate pair"),
    ],
)
def test_a_wrong_line_is_named_with_its_remedy(write, line, message):
    with pytest.raises(CoterieError, match=r"tasks\.jsonl, line 3: " + message) as caught:
        load_jsonl(write([without(question="other"), "", line]), None, 1, 0)
    assert caught.value.__cause__ is None


def test_duplicate_ids_are_named_with_both_places(write):
    lines = [without(id="x"), without(id="x", question="other")]
    with pytest.raises(CoterieError, match=r"tasks\.jsonl, line 2: the id 'x' is taken by .*tasks\.jsonl, line 1; give"):
        load_jsonl(write(lines), None, 2, 0)
    with pytest.raises(CoterieError, match=r"held\.jsonl, line 1: the id 'x' is taken by .*tasks\.jsonl, line 1"):
        load_jsonl(write(lines[:1]), write(lines[1:], "held.jsonl"), 1, 1)
    with pytest.raises(CoterieError, match=r"line 2: the id 'task-2' is taken"):
        load_jsonl(write([without(id="task-2"), without()]), None, 2, 0)


def test_byte_order_mark_windows_line_ends_and_blank_lines(write):
    line = json.dumps(GOOD).encode()
    tasks = load_jsonl(write([b"\xef\xbb\xbf" + line + b"\r", b"\r", line + b"\r", b""]), None, 2, 0)
    assert {task.id for task in tasks.train} == {"task-1", "task-3"}


def test_a_file_in_another_encoding_is_named(write):
    with pytest.raises(CoterieError, match=r"line 1: byte 1 is not UTF-8"):
        load_jsonl(write(["\ufeff{}".encode("utf-16-le")]), None, 1, 0)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CoterieError, match=r"none\.jsonl cannot be read"):
        load_jsonl(str(tmp_path / "none.jsonl"), None, 1, 0)


def test_skip_counts_and_logs(write, caplog):
    lines = [GOOD, {"question": "Ann has 3.", "answer": "3"}, {"question": "How many?", "answer": "3"}]
    with caplog.at_level(logging.WARNING):
        tasks = load_jsonl(write(lines), None, 1, 0, on_reject="skip")
    assert (len(tasks.train), tasks.skipped) == (1, 2)
    assert "skipped 2 of 3 tasks" in caplog.text


def test_too_few_tasks(write):
    path = write(numbered(5))
    with pytest.raises(CoterieError, match=r"has 5 usable tasks but tasks.held_out asks for 6"):
        load_jsonl(path, None, 0, 6)
    with pytest.raises(CoterieError, match=r"without its held-out tasks has 3 usable tasks but tasks.train asks for 4"):
        load_jsonl(path, None, 4, 2)
    with pytest.raises(CoterieError, match=r"tasks.train is -1"):
        load_jsonl(path, None, -1, 2)


def test_one_file_holds_out_the_same_tasks_whatever_the_seed_and_the_order(write):
    records = numbered(40)
    held = {task.id for task in load_jsonl(write(records), None, 30, 10).held_out}
    random.Random(1).shuffle(records)
    again = load_jsonl(write(records), None, 30, 10, seed=5)
    assert {task.id for task in again.held_out} == held
    assert {task.id for task in again.train} == {f"q{i}" for i in range(40)} - held
    more = {task.id for task in load_jsonl(write(records), None, 20, 20).held_out}
    assert held < more
    check_overlap(again)


def test_one_file_with_repeated_questions_puts_no_question_on_both_sides(write):
    records = numbered(12) + [
        record | {"id": record["id"] + "b", "question": record["question"].upper()} for record in numbered(12)
    ]
    for held_out in range(1, 12):
        tasks = load_jsonl(write(records), None, 12, held_out)
        check_overlap(tasks)
        assert len(tasks.held_out) == held_out
        assert len({normalise(task.question) for task in tasks.train}) >= 6


def test_two_files_are_shuffled_by_the_seed(write):
    train, held = write(numbered(20)), write([record | {"id": "h" + record["id"]} for record in numbered(20)], "held.jsonl")
    one, same, other = (load_jsonl(train, held, 10, 10, seed) for seed in (0, 0, 1))
    assert one == same
    assert one.train != other.train
    with pytest.raises(CoterieError, match="held-out tasks ask the same question"):
        check_overlap(load_jsonl(train, held, 20, 20))


def test_three_seats_and_none(write):
    facts = {"x": ["1"], "y": ["2"], "z": ["3"]}
    assert load_jsonl(write([without(facts=facts)]), None, 1, 0, seats=("x", "y", "z")).train[0].private["z"] == ("3",)
    plain = load_jsonl(write([{"question": "Say hello", "answer": "hello"}]), None, 1, 0, seats=()).train[0]
    assert (plain.ask, plain.private) == ("Say hello", {})
