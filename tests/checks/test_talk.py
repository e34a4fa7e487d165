import pytest

from coterie.checks.text import copies, loops
from tests.checks.sample import BEFORE, PLAIN, RUN, conversation, measured, status


@pytest.mark.parametrize(("tokens", "expected"), [(29.0, "ok"), (31.0, "note"), (61.0, "fault"), (13.0, "note"), (6.5, "fault")])
def test_messages_that_grow_or_shrink(tokens, expected):
    """From 20 tokens a message."""
    assert status("length", record=measured(RUN, message_tokens=tokens)) == expected


def test_answers_count_like_messages_and_nothing_is_said_without_a_before():
    assert status("length", record=measured(RUN, final_tokens=91.0)) == "fault"
    assert status("length", before=None) == "unknown"


@pytest.mark.parametrize(("share", "expected"), [(0.02, "ok"), (0.03, "note"), (0.11, "fault")])
def test_the_worst_turn_counts(share, expected):
    assert status("cut messages", record=measured(RUN, cut_by_turn={"0": 0.0, "1": share, "2": 0.0})) == expected


@pytest.mark.parametrize(("boxed", "expected"), [(1.0, "ok"), (0.945, "ok"), (0.92, "note"), (0.89, "fault")])
def test_lost_boxes(boxed, expected):
    """From 0.95."""
    assert status("box", record=measured(RUN, boxed=boxed)) == expected


LOOP = conversation("Hello!", "We have pens. " * 10, "\\boxed{7}", "\\boxed{7}")
COPY = conversation("Hello!", "Hi!", "Tom has 3 pens. Sue has 4 pens. How many pens?", "\\boxed{7}")


@pytest.mark.parametrize("planted", [LOOP, COPY])
def test_degenerate_text(planted):
    """One message of four in one conversation, of 4, 20 and 30."""
    for others, expected in ((3, "fault"), (19, "note"), (29, "ok")):
        assert status("degenerate text", conversations=[planted] + [PLAIN] * others) == expected
    assert status("degenerate text", conversations=[planted] * 4, before_conversations=[planted] * 4) == "ok"
    assert status("degenerate text", conversations=[planted] * 4, before_conversations=[]) == "fault"
    assert status("degenerate text", conversations=[]) == "unknown"


def test_what_is_a_copy_depends_on_who_says_it_and_when():
    facts = "Tom has 3 pens and 4 cards and 5 books."
    shared = {**conversation(facts, "Hi!", "\\boxed{7}", "\\boxed{7}"), "facts": {"A": [facts]}}
    assert status("degenerate text", conversations=[shared]) == "ok"  # to tell one's facts is what messages are for
    answered = {**conversation("Hi!", "Hi!", facts, "\\boxed{7}"), "facts": {"A": [facts]}}
    assert status("degenerate text", conversations=[answered]) == "fault"
    parroted = conversation(facts, facts, "\\boxed{7}", "\\boxed{7}")
    assert status("degenerate text", conversations=[parroted]) == "fault"
    met = conversation(facts, facts, "\\boxed{7}", "\\boxed{7}", heard=False)
    assert status("degenerate text", conversations=[met]) == "ok"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the answer is 7 so " * 4, True),
        ("好" * 10, True),
        ("ab" * 10, True),
        ("-" * 40, False),
        ("Tom has 3 pens. Sue has 4 pens. Ann has 5 pens. Ben has 6 pens. So 18 pens.", False),
        ("we do we do we do we do", False),  # 8 words
        ("", False),
    ],
)
def test_loops(text, expected):
    assert loops(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two three, four FIVE six seven eight!", True),
        ("one two three four five six seven", False),  # 7 words
        ("one two three four five six seven eight so ten", True),  # 8 of 10
        ("one two three four five six seven eight so it goes", False),  # 8 of 11
        ("", False),
    ],
)
def test_copies(text, expected):
    assert copies(text, ["nothing", "zero one two three four five six seven eight nine"]) is expected


def test_before_is_what_counts_where_the_base_is_as_bad():
    assert status("box", record=measured(RUN, boxed=0.3), before=measured(BEFORE, boxed=0.3)) == "ok"


def test_to_agree_is_not_to_copy():
    """B has heard A's whole solution and ends with the same one; the same text before the end is a copy."""
    solved = "54 - 30 = 24, since Leo has thirty keys fewer than Ned has. \\boxed{24}"
    agreed = conversation("I have 3 pens.", "I have 4.", solved, solved)
    assert status("degenerate text", conversations=[agreed] * 4) == "ok"
    parroted = conversation(solved, solved, "So \\boxed{7}", "So \\boxed{7}")
    assert status("degenerate text", conversations=[parroted] * 4) == "fault"
