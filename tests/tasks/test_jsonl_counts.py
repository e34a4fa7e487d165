"""How many tasks are taken when the user does not say."""

import json

from coterie.tasks.jsonl import load_jsonl


def write(path, count):
    lines = [
        {
            "question": f"Tom has {n} apples. Sue has 5 more. How many in all?",
            "answer": str(2 * n + 5),
            "facts": {"A": [f"Tom has {n}."], "B": ["Sue has 5 more."]},
            "ask": "How many?",
        }
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_without_counts_everything_is_used(tmp_path):
    one = load_jsonl(write(tmp_path / "a.jsonl", 30), None, None, None)
    assert (len(one.train), len(one.held_out)) == (27, 3)
    assert not {t.question for t in one.train} & {t.question for t in one.held_out}
    two = load_jsonl(str(tmp_path / "a.jsonl"), write(tmp_path / "b.jsonl", 4).replace("a.", "b."), None, 2)
    assert (len(two.train), len(two.held_out)) == (30, 2)
