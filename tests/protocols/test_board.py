"""Who writes, who reads what, and what that did."""

from dataclasses import replace

import pytest

from coterie.hall import Replay
from coterie.measures import answer_spelling, measure
from coterie.play import longest_request
from coterie.protocols.board import PLAIN, POCKET, Board
from coterie.types import Task
from tests.fakes import task
from tests.protocols.scripted import TOKENIZER, note, number, played, prompt

STORY = Task("p", "Tom has 3. Sue has 4. How many?", "7", "How many?", meta={"facts": ("Tom has 3.", "Sue has 4.")})


def board(copies=4, visible=4, split=False, wording=POCKET):
    return Board(copies, visible, split, 20, 30, wording, number)


NOTES = tuple(note(f"writer {i}", i, f"note {i}") for i in range(4))


@pytest.mark.parametrize(
    ("copies", "visible", "seen"),
    [
        (4, 1, [(0,), (1,), (2,), (3,)]),
        (4, 2, [(0, 1), (1, 2), (2, 3), (3, 0)]),  # the published ring
        (3, 3, [(0, 1, 2), (1, 2, 0), (2, 0, 1)]),
    ],
)
def test_who_sees_which_notes(copies, visible, seen):
    protocol = board(copies, visible)
    assert [protocol.seen(reader) for reader in range(copies)] == seen
    episode = played(protocol, task(), [str(i) for i in range(2 * copies)])
    writers, readers = episode.messages[:copies], episode.messages[copies:]
    assert [message.heard for message in readers] == [tuple(sorted(notes)) for notes in seen]
    assert all(message.heard == () and not message.final and message.score is not None for message in writers)
    assert all(message.final for message in readers)
    assert tuple(message.seat for message in episode.messages) == protocol.seats
    for reader, notes in enumerate(seen):
        for i in range(copies):
            assert (f": {i}\n" in prompt(readers[reader])) == (i in notes)


def test_the_prompts_of_instruction_models_word_for_word():
    protocol = board(4, 2, wording=PLAIN)
    assert protocol.write_view(STORY, 0).messages == (("system", PLAIN.write.system), ("user", STORY.question))
    assert protocol.read_view(STORY, 3, NOTES).messages == (
        ("system", PLAIN.read.system),
        ("user", f"{STORY.question}\n\nThe board:\n\nNote 1 (your own):\nnote 3\n\nNote 2:\nnote 0"),
    )


def test_the_prompts_of_the_pocket_model_word_for_word():
    ((_, write),), ((_, read),) = board().write_view(STORY, 2).messages, board(visible=2).read_view(STORY, 2, NOTES).messages
    assert write == "Facts: Tom has 3.\nQuestion: How many?\nPartner: I know: Sue has 4.\nAnswer:"
    assert read == write.replace("Answer:", "You: note 2\nPartner: note 3\nAnswer:")


def test_split_facts_go_to_even_and_odd_copies():
    protocol = board(4, 2, split=True)
    ((_, write),), ((_, read),) = protocol.write_view(task(), 3).messages, protocol.read_view(task(), 3, NOTES).messages
    assert write == "Facts: Sue has 4.\nQuestion: How many?\n(nothing yet)\nWrite:"
    assert read == "Facts: Sue has 4.\nQuestion: How many?\nYou: note 3\nPartner: note 0\nAnswer:"
    assert "Tom has 3." in protocol.write_view(task(), 0).messages[0][1]
    assert (protocol.fact_seats, board().fact_seats) == (("A", "B"), ())
    assert (protocol.check(STORY), board().check(STORY)) == ("has no facts for seat A, B", None)


@pytest.mark.parametrize("copy", range(4))
def test_a_copy_with_half_the_facts_is_never_shown_the_other_half(copy):
    """Breaks when a split page falls back to the whole question, or to the story of a pocket task."""
    told = replace(task(), meta={"facts": ("Tom has 3.", "Sue has 4.")})
    protocol = board(4, 4, split=True, wording=PLAIN if copy < 2 else POCKET)
    other = "Sue has 4." if copy % 2 == 0 else "Tom has 3."
    for view in (protocol.write_view(told, copy), protocol.read_view(told, copy, NOTES)):
        assert other not in str(view.messages)


@pytest.mark.parametrize("wording", [PLAIN, POCKET])
def test_a_hidden_note_is_as_if_it_had_not_been_posted(wording):
    """For its own copy too: "reader 1" is another seat than "writer 1"."""
    protocol = board(3, 3, wording=wording)
    hidden = (NOTES[0], replace(NOTES[1], hidden=True), NOTES[2])
    ((_, shown),) = protocol.read_view(STORY, 0, hidden).messages[-1:]
    assert "note 1" not in shown
    assert "Note 3" not in shown  # nor does a number betray that there was one
    ((_, own),) = protocol.read_view(STORY, 1, hidden).messages[-1:]
    assert [f"note {i}" in own for i in range(3)] == [True, False, True]
    ((_, alone),) = board(3, 1, wording=PLAIN).read_view(STORY, 1, hidden).messages[-1:]
    assert alone.endswith("The board:\n\n(no notes)")


def test_a_replay_asks_again_only_those_who_read_the_note():
    """Ring of four: note 1 has the readers 0 and 1. The others are the same objects, hence the same to the bit."""
    protocol = board(4, 2)
    old = played(protocol, task(), ["n0", "n1", "n2", "n3", "7", "7", "7", "7"])
    new = played(protocol, task(), ["8", "9"], Replay(old, 1))
    assert [a.ids is b.ids for a, b in zip(old.messages, new.messages, strict=True)] == [True] * 4 + [False, False, True, True]
    assert [m.hidden for m in new.messages] == [False, True] + [False] * 6
    assert [m.text for m in new.messages[4:]] == ["8", "9", "7", "7"]
    assert all("n1" not in prompt(m) for m in new.messages[4:6])
    assert (old.reward, new.reward) == (1.0, 0.5)


def test_measures_by_hand():
    """Task answer 7. First board: notes 7 7 3 x(none); vote 7. Second: 3 5 5 none: vote 5."""
    protocol = board(4, 4)
    first = played(protocol, task(), ["7", "7", "3", "x", "7", "3", "7", "x"])
    second = played(protocol, task(), ["3", "5", "5", "x", "3", "3", "7", "5"])
    assert protocol.measures([first, second], {}) == {
        "note_score": 2 / 8,
        "vote_score": 1 / 2,
        "any_note": 1 / 2,
        "switched": (2 + 3) / 8,  # 7>3, 3>7; 5>3, 5>7, none>5; none>none is no switch
        "rescued": 2 / 8,
        "misled": 1 / 8,
    }
    assert set(protocol.measures([], {}).values()) == {None}


def test_a_board_with_a_grading_error_does_not_count():
    protocol = board(2, 2)
    good, bad = played(protocol, task(), ["7", "7", "7", "7"]), played(protocol, task(), ["?", "7", "7", "7"])
    assert bad.reward is None
    assert protocol.measures([good, bad], {})["note_score"] == 1.0


def test_all_talk_measures_hold_for_a_board():
    """`shared` and `used` are of seats that hold facts. A reader's own half must not count as another's."""
    protocol = board(2, 2, split=True)
    found = measure(protocol, [played(protocol, task(), ["I know 3", "What?", "7", "7"])], {"t1": task()})
    assert (found["shared"], found["used"], found["asked"], found["agree"]) == (None, None, 0.5, 1.0)


@pytest.mark.parametrize(
    ("text", "spelling"),
    [
        ("so \\boxed{1,800.00}", "1800"),
        ("He pays $1800.", "1800"),
        ("\\boxed{\\frac{1}{2}}", "1/2"),
        ("that is 0.5", "1/2"),
        ("\\boxed{x + 1}", "x + 1"),
        ("I do not know", None),
        ("\\boxed{18", None),
    ],
)
def test_votes_are_counted_by_one_spelling(text, spelling):
    assert answer_spelling(text) == spelling


def test_the_longest_request_holds_all_notes_at_their_caps():
    prompt_length, cap = longest_request(task(), board(4, 4), TOKENIZER)
    empty = len(TOKENIZER.encode(board(4, 4).read_view(task(), 0, tuple(replace(n, text="") for n in NOTES))))
    assert (prompt_length, cap) == (empty + 4 * 20, 30)
    assert board().caps() == {"protocol.message_tokens": 20, "protocol.final_tokens": 30}
