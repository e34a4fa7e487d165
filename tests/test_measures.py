import itertools
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.measures import agree, highlights, numbers, others_numbers, private_numbers, talk_measures, unheard
from coterie.types import BASE, POLICY, CoterieError, Episode, Message, Task

TASK = Task(
    id="t",
    question="",
    answer="7",
    ask="How many after 10 days?",
    private={"A": ("Ann has 3 pens and 1,200 cards.", "It is day 10."), "B": ("Bob has 4 pens.", "A pen has 3 colours.")},
)
"""Only A can know 1200, only B can know 4: 3 is in both, 10 is in the ask."""


def say(seat, turn, text, final=False, stop="eos", tokens=3):
    ids = tuple(range(tokens))
    return Message(seat, POLICY, turn, final, (1,), ids, (-1.0,) * tokens, stop, text, 1.0, 0)


def chat(a1, b1, a2, b2, scores=None, reward=None, errors=None, task_id="t"):
    messages = (say("A", 0, a1), say("B", 1, b1), say("A", 2, a2, True), say("B", 3, b2, True))
    return Episode(task_id, 0, {"A": POLICY, "B": BASE}, messages, scores or {}, reward, errors or {})


@pytest.mark.parametrize(
    ("text", "plain", "published"),
    [
        ("1,000 and 3,4", {"1000", "3", "4"}, {"1000", "34"}),
        ("3, 4", {"3", "4"}, {"3", "4"}),
        ("5.0 and 5", {"5"}, {"5.0", "5"}),
        ("$3.50.", {"3.5"}, {"3.50"}),
        ("1,0000", {"1", "0"}, {"10000"}),
        ("12,345,678.90", {"12345678.9"}, {"12345678.90"}),
        ("12345,678", {"12345", "678"}, {"12345678"}),
        ("007", {"7"}, {"007"}),
        (".5 of it", {"0.5"}, {"5"}),
        ("end.5", {"5"}, {"5"}),
        ("twice", set(), set()),
        ("3:45pm", {"3", "45"}, {"3", "45"}),
    ],
)
def test_numbers(text, plain, published):
    assert numbers(text) == plain
    assert numbers(text, published=True) == published


@given(st.lists(st.integers(0, 10**7), max_size=6), st.sampled_from(["{}", "{:,}"]), st.sampled_from([", ", " and ", ". ", "; "]))
def test_numbers_of_a_list(values, form, between):
    assert numbers(between.join(form.format(value) for value in values)) == {str(value) for value in values}


def test_who_can_know_what():
    assert private_numbers(TASK, "A") == {"1200"} == others_numbers(TASK, "B")
    assert private_numbers(TASK, "B") == {"4"} == others_numbers(TASK, "A")


def test_three_seats():
    task = Task("t", "", "", "ask 9", {"A": ("1 2",), "B": ("2 3",), "C": ("3 4 9",)})
    assert [private_numbers(task, seat) for seat in "ABC"] == [{"1"}, set(), {"4"}]
    assert [others_numbers(task, seat) for seat in "ABC"] == [{"3", "4"}, {"1", "4"}, {"1", "2"}]


def test_a_chat_by_hand():
    episodes = [
        # A shares 1200 and uses 4; B shares nothing and uses nothing; both say 7
        chat("I have 1200. You?", "Hello 3", "4 + 3, so \\boxed{7}", "The answer is 7", {"A": 1.0, "B": 1.0}, 1.0),
        # A shares nothing before its end, B shares 4; A does not use, B uses 1,200
        chat("Hi", "4 pens", "\\boxed{1200}", "1,200 and so \\boxed{8", {"A": 0.0}, None, {"B": "worker died"}),
    ]
    measures = talk_measures(episodes, {"t": TASK})
    assert measures["episodes"] == 2
    assert measures["shared"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert measures["used"] == pytest.approx((1 + 0 + 0 + 1) / 4)
    assert measures["asked"] == pytest.approx(1 / 4)
    assert measures["agree"] == pytest.approx(1 / 2)
    assert measures["boxed"] == pytest.approx(2 / 4)
    assert measures["message_chars"] == pytest.approx((17 + 7 + 2 + 6) / 4)
    assert measures["message_tokens"] == 3
    assert measures["score_by_seat"] == {"A": 0.5, "B": 1.0}
    assert (measures["reward"], measures["errors"]) == (1.0, 1)
    assert measures["cut"] == 0.0
    assert json.loads(json.dumps(measures)) == measures


def test_the_published_rules_count_the_same_chat_otherwise():
    episodes = [chat("I have 1200,4", "4", "\\boxed{\\frac{7}{1}}", "\\boxed{\\frac{7}{2}}"), chat("", "", "7", "7")]
    published, plain = talk_measures(episodes, {"t": TASK}, published=True), talk_measures(episodes, {"t": TASK})
    assert published["shared"] == pytest.approx((0 + 1 + 0 + 0) / 4)  # "1200,4" is 12004
    assert plain["shared"] == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert published["agree"] == pytest.approx(1 / 2)  # equal up to the first closing brace; without a box never
    assert plain["agree"] == pytest.approx(1 / 2)  # 7 is not 7/2; 7 is 7


@pytest.mark.parametrize(
    ("one", "other", "plain", "published"),
    [
        ("\\boxed{7}", "\\boxed{7}", True, True),
        ("\\boxed{7}", "\\boxed{7.0}", True, False),
        ("\\boxed{7}", "so it is 7", True, False),
        ("7", "8", False, False),
        ("no idea", "no idea", False, False),
        ("\\boxed{Monday}", "\\boxed{monday}", True, False),
        ("\\boxed{x + 1}", "\\boxed{7}", False, False),
        ("\\boxed{}", "\\boxed{}", False, True),
        ("\\boxed{7", "\\boxed{7}", False, False),
    ],
)
def test_agree(one, other, plain, published):
    assert agree([one, other]) is plain
    assert agree([other, one]) is plain
    assert agree([one, other], published=True) is published


def test_agree_needs_every_seat():
    assert agree(["7", "7", "\\boxed{7}"])
    assert not agree(["7", "7", "8"])


def test_nothing_to_measure_is_none_and_not_zero():
    measures = talk_measures([], {})
    assert (measures["episodes"], measures["errors"]) == (0, 0)
    assert all(measures[name] is None for name in ("shared", "used", "asked", "agree", "boxed", "reward", "cut", "message_chars"))
    assert (measures["cut_by_turn"], measures["score_by_seat"]) == ({}, {})
    bare = Task("t", "", "", "", {"A": ("no number",), "B": ("none",)})
    measures = talk_measures([chat("3?", "4", "5", "6")], {"t": bare})
    assert measures["shared"] is None
    assert measures["used"] is None
    assert measures["asked"] == 0.5


def test_seats_that_only_answer_have_nothing_to_share_or_ask():
    episode = Episode("t", 0, {}, (say("A", 0, "4 pens?", True), say("B", 1, "1200?", True)), {}, None)
    measures = talk_measures([episode], {"t": TASK})
    assert (measures["shared"], measures["asked"], measures["used"], measures["message_chars"]) == (None, None, 1.0, None)


def test_one_answer_alone_cannot_agree():
    episode = Episode("t", 0, {}, (say("A", 0, "hi"), say("B", 1, "7", True)), {}, None)
    assert talk_measures([episode], {"t": TASK})["agree"] is None


def test_cut_messages_by_turn():
    def episode(stop):
        return Episode("t", 0, {}, (say("A", 0, "", stop=stop), say("B", 1, "", True, "length", 5)), {}, None)

    measures = talk_measures([episode("eos"), episode("length")], {"t": TASK})
    assert measures["cut_by_turn"] == {"0": 0.5, "1": 1.0}
    assert measures["cut"] == 0.75
    assert measures["final_tokens"] == 5


def test_an_unknown_task_is_named():
    with pytest.raises(CoterieError, match="task 'u', which is not among the tasks"):
        talk_measures([chat("", "", "", "", task_id="u")], {"t": TASK})


def test_highlights():
    text = "I have 1,200 cards; you 4.0 pens, 3 both"
    spans = highlights(text, private_numbers(TASK, "A"), others_numbers(TASK, "A"))
    assert [(text[start:end], kind) for start, end, kind in spans] == [("1,200", "own"), ("4.0", "others")]
    assert highlights("", {"1"}, {"2"}) == []


@given(st.text(alphabet="12,. ab", max_size=40), st.frozensets(st.sampled_from(["1", "2", "12", "1.2", "0.1"])))
def test_highlights_are_in_order_apart_and_complete(text, own):
    spans = highlights(text, own, ())
    assert all(end <= start for (_, end, _), (start, _, _) in itertools.pairwise(spans))
    assert frozenset().union(*(numbers(text[start:end]) for start, end, _ in spans)) == own & numbers(text)


@pytest.mark.parametrize(
    ("seat", "text", "heard", "made_up"),
    [
        ("B", "Ann has 1,200 cards.", [], True),
        ("B", "Ann has 1,200 cards.", ["I hold 1200"], False),  # it was told
        ("B", "So 300 * 4 = 1200", [], False),  # one step from 300, which it wrote, and its own 4
        ("B", "1200 = 300 * 4", [], True),  # what comes after does not make it known
        ("B", "Is it 1201, or 3, or day 10?", [], False),  # nobody's, its own, everybody's
        ("A", "4 pens", [], True),
        ("A", "3 + 1 = 4", [], False),
        ("A", "0 and so 4", [], True),  # 0 divides nothing
        ("A", "3 and 7 make 4", [], False),  # the difference
        ("A", "12 / 3 = 4", [], False),
        ("B", "120 a day is 1200", [], False),  # times the 10 of the question
        ("A", "No numbers", [], False),
        ("A", "9" * 5000 + " and 4", [], True),
        ("reader 0", "1200", [], None),  # it has no facts of its own
    ],
)
def test_numbers_that_a_seat_was_never_given(seat, text, heard, made_up):
    assert unheard(say(seat, 0, text), TASK, heard) is made_up


def test_the_share_of_messages_that_make_something_up():
    """A says B's 4 before it has heard it; B's 4 is its own; A's last message has heard it; B's 1200 was never said."""
    a1, b1, a2, b2 = chat("Have you 4?", "Yes, 4", "4", "1200").messages
    told = (a1, replace(b1, heard=(0,)), replace(a2, heard=(0, 1)), replace(b2, heard=(0, 1, 2)))
    episode = Episode("t", 0, {"A": POLICY, "B": BASE}, told, {}, None, {})
    assert talk_measures([episode], {"t": TASK})["unheard"] == pytest.approx(2 / 4)
    whole = Task("t", "", "7", "How many?", {})
    assert talk_measures([episode], {"t": whole})["unheard"] is None
