"""The exact prompts of the chat, turn by turn, and dialogues whose prompts extend each other."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import coterie.pocket
from coterie.hall import Replay
from coterie.play import longest_request
from coterie.protocols.chat import PLAIN, POCKET, Chat
from coterie.tokens import load_tokenizer
from coterie.types import POLICY, Message, Task
from tests.fakes import TEMPLATE, byte_tokenizer, chat_tokenizer, task
from tests.protocols.scripted import played, prompt

ORDER = ("A", "B", "A", "B")


def message(seat, turn, text):
    return Message(seat, POLICY, turn, False, (1,), (2,), (-1.0,), "eos", text, 1.0, 0)


SAID = (message("A", 0, "I have 3."), message("B", 1, "I have 4."))


def test_first_turn_word_for_word():
    view = Chat(ORDER, 10, 10, True, PLAIN).view(task(), "A", (), final=False)
    assert view.messages == (
        ("system", PLAIN.system),
        (
            "user",
            "Facts that you know:\nTom has 3.\n\nQuestion: How many?\n\nConversation so far:\n(nothing yet)\n\n"
            "Write your next message to your partner.",
        ),
    )


def test_last_turn_shows_own_and_partner_lines():
    ((_, body),) = Chat(ORDER, 10, 10, True, POCKET).view(task(), "B", SAID, final=True).messages
    assert "Sue has 4." in body
    assert "Tom has 3." not in body
    assert "\nPartner: I have 3.\nYou: I have 4.\nAnswer:" in body


def test_with_the_channel_cut_only_partner_lines_are_replaced():
    ((_, body),) = Chat(ORDER, 10, 10, False, POCKET).view(task(), "B", SAID, final=True).messages
    assert "I have 3." not in body
    assert "\nPartner: (no message)\nYou: I have 4.\n" in body


def test_braces_in_messages_and_facts_are_text():
    braces = task(1, A=("Tom has {3}.",), B=("{ask} {0}",))
    ((_, body),) = (
        Chat(ORDER, 10, 10, True, POCKET).view(braces, "B", (message("A", 0, "{facts} \\boxed{3}"),), final=True).messages
    )
    assert "{ask} {0}" in body
    assert "Partner: {facts} \\boxed{3}" in body


def test_three_seats_are_told_apart_except_for_the_pocket_model_which_knows_one_partner():
    told = task(1, A=("a 1",), B=("b 2",), C=("c 3",))
    three = Chat(("A", "B", "C", "A"), 10, 10, True, PLAIN)
    assert "\nPartner A: I have 3.\nPartner B: I have 4.\n" in three.view(told, "C", SAID, final=False).messages[1][1]
    assert three.seats == three.fact_seats == ("A", "B", "C")
    ((_, body),) = replace(three, wording=POCKET).view(told, "C", SAID, final=False).messages
    assert "\nPartner: I have 3.\nPartner: I have 4.\n" in body


@pytest.mark.parametrize("order", ["ABAB", "ABCABC", "ABBACDAC"])
def test_a_seat_s_last_turn_is_its_final_message_in_any_order(order):
    chat = Chat(tuple(order), 9, 20, True, PLAIN)
    told = task(1, **{seat: (f"{seat} has 1.",) for seat in chat.seats})
    episode = played(chat, told, ["7"] * len(order))
    assert [m.seat for m in episode.messages] == list(order)
    assert [m.turn for m in episode.messages if m.final] == sorted(order.rindex(seat) for seat in set(order))
    assert set(episode.scores) == set(order)
    assert [m.heard for m in episode.messages] == [tuple(range(turn)) for turn in range(len(order))]


def test_with_the_channel_cut_a_seat_hears_itself_only():
    episode = played(Chat(ORDER, 9, 9, False, POCKET), task(), ["a", "b", "7", "7"])
    assert [m.heard for m in episode.messages] == [(), (), (0,), (1,)]


def test_a_task_without_facts_for_a_seat_is_named():
    assert Chat(ORDER, 10, 10, True, POCKET).check(task(1, A=("a 1",))) == "has no facts for seat B"
    assert Chat(ORDER, 10, 10, True, POCKET).check(task()) is None


DIALOGUE = Chat(ORDER, 20, 20, True, PLAIN, "dialogue")


def test_a_dialogue_word_for_word():
    said = (*SAID, message("A", 2, "Then 7."))
    last = DIALOGUE.view(task(), "B", said, final=True)
    assert last.messages == (
        ("system", PLAIN.system),
        (
            "user",
            "Facts that you know:\nSue has 4.\n\nQuestion: How many?\n\nConversation so far:\nPartner: I have 3.\n\n"
            "Write your next message to your partner.",
        ),
        ("assistant", "I have 4."),
        ("user", f"Partner: Then 7.\n\n{PLAIN.answer}"),
    )
    assert last.sampled == ((2, SAID[1].ids),)
    assert DIALOGUE.view(task(), "B", said[:1], final=False).messages == last.messages[:2]


def test_the_first_prompt_is_the_same_in_both_forms():
    for seat, said in (("A", ()), ("B", SAID[:1])):
        assert DIALOGUE.view(task(), seat, said, False) == replace(DIALOGUE, history="rebuilt").view(task(), seat, said, False)


def test_a_dialogue_shows_no_message_that_is_hidden_or_undelivered():
    said = (replace(SAID[0], hidden=True), SAID[1], message("A", 2, "Then 7."))
    assert "I have 3." not in str(DIALOGUE.view(task(), "B", said, True).messages)
    assert "Partner: (no message)" in str(DIALOGUE.view(task(), "B", said, True).messages)
    assert "I have 3." in str(DIALOGUE.view(task(), "A", said[:2], True).messages)  # its own
    cut = str(replace(DIALOGUE, deliver=False).view(task(), "B", (*SAID, said[2]), True).messages)
    assert [text in cut for text in ("I have 3.", "I have 4.", "Then 7.")] == [False, True, False]


def test_a_seat_that_speaks_twice_running_is_told_that_nothing_was_said():
    view = Chat(("A", "A", "B"), 9, 9, True, POCKET, "dialogue").view(task(), "A", SAID[:1], True)
    assert view.messages[-1] == ("user", "(nothing yet)\nAnswer:")


def _lines_template():
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace("|>{{ message.content }}<|end|>", "|>\n{{ message.content }}<|end|>\n").replace(
        "<|assistant|>{% endif", "<|assistant|>\n{% endif"
    )
    return type(chat_tokenizer())(tokenizer, "lines")


TOKENIZERS = {
    "bytes": chat_tokenizer(),
    "lines": _lines_template(),
    "pocket": load_tokenizer(str(Path(coterie.pocket.__file__).parent / "model")),
}
WHOLE = st.lists(st.integers(0, 255), max_size=8)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(order=st.lists(st.sampled_from("ABC"), min_size=1, max_size=7), said=st.lists(st.tuples(WHOLE, st.booleans()), min_size=7))
def test_a_prompt_begins_with_the_seat_s_last_prompt_and_what_it_said_there(name, order, said):
    """The ids are drawn at random, so that few are what their text would be encoded to. Breaks when they are made from text again,
    when a finished message gets a second end token or a cut one none, and when an instruction of an earlier turn changes."""
    tokenizer = TOKENIZERS[name]
    chat = Chat(tuple(order), 9, 9, True, PLAIN if name != "pocket" else POCKET, "dialogue")
    told = task(1, A=("a 1",), B=("b 2",), C=("c 3",))
    messages: list[Message] = []
    before: dict[str, tuple[int, ...]] = {}
    for turn, (seat, (drawn, cut)) in enumerate(zip(order, said, strict=False)):
        prompt_ids = tokenizer.encode(chat.view(told, seat, tuple(messages), seat not in order[turn + 1 :]))
        ids = tuple(i for i in drawn if i not in tokenizer.control_ids)
        ids = ids if cut and ids else (*ids, tokenizer.stop_ids[0])
        stop = "length" if ids[-1] != tokenizer.stop_ids[0] else "eos"
        if seat in before:
            known = len(before[seat])
            assert prompt_ids[:known] == before[seat]
            ends = [i for i in prompt_ids[known:] if i == tokenizer.stop_ids[0]]
            assert len(ends) == (1 if before[seat][-1] == tokenizer.stop_ids[0] else 2)  # the user message's, and that of a cut one
        before[seat] = prompt_ids + ids
        messages.append(replace(message(seat, turn, tokenizer.decode(ids).strip()), ids=ids, stop=stop))


def test_a_played_dialogue_extends_its_own_ids():
    episode = played(DIALOGUE, task(), ["I have 3.", "x" * 99, "7", "7"])
    first, cut, last, answer = episode.messages
    assert cut.stop == "length"
    assert last.prompt_ids[: len(first.prompt_ids + first.ids)] == first.prompt_ids + first.ids
    assert answer.prompt_ids[: len(cut.prompt_ids + cut.ids)] == cut.prompt_ids + cut.ids
    assert "Partner: 7" in prompt(answer)


def test_the_longest_dialogue_counts_own_messages_at_their_caps():
    prompt_length, cap = longest_request(task(), DIALOGUE, TOKENIZERS["bytes"])
    empty = tuple(message(seat, turn, "") for turn, seat in enumerate("ABA"))
    bare = len(TOKENIZERS["bytes"].encode(replace(DIALOGUE.view(task(), "B", empty, True), sampled=())))
    assert (prompt_length, cap) == (bare + 3 * 20, 20)


@pytest.mark.parametrize("history", ["rebuilt", "dialogue"])
@pytest.mark.parametrize(
    ("hidden", "kept"),
    [
        (0, [True, False, False, False]),  # B heard it at once, and A hears B
        (1, [True, True, False, False]),
        (2, [True, True, True, False]),
        (3, [True, True, True, True]),  # nobody speaks after it
    ],
)
def test_a_replay_of_a_chat(history, hidden, kept):
    chat = Chat(ORDER, 20, 20, True, POCKET, history)
    old = played(chat, task(), ["I have 3.", "I have 4.", "7", "7"])
    new = played(chat, task(), ["8"] * kept.count(False), Replay(old, hidden))
    assert [a.ids is b.ids for a, b in zip(old.messages, new.messages, strict=True)] == kept
    if hidden == 0:
        assert "I have 3." not in prompt(new.messages[1])
        assert "(no message)" in prompt(new.messages[1])
        assert "I have 3." in prompt(new.messages[2])  # A knows what it said itself


def test_with_the_channel_cut_a_replay_changes_nothing():
    chat = Chat(ORDER, 20, 20, False, POCKET)
    old = played(chat, task(), ["I have 3.", "I have 4.", "7", "7"])
    new = played(chat, task(), [], Replay(old, 0))
    assert all(a.ids is b.ids for a, b in zip(old.messages, new.messages, strict=True))


def test_three_seats_are_spoken_to_as_three():
    """Breaks when the words for two seats ("a partner") are used for more: a model would look for one partner only."""
    task = Task("t", "q", "1", "How many?", {"A": ("One 1.",), "B": ("Two 2.",), "C": ("Three 3.",)})
    three = Chat(("A", "B", "C", "A", "B", "C"), 9, 9, True, PLAIN)
    (_, system), (_, body) = three.view(task, "A", (), False).messages
    assert "your partners" in system
    assert "a partner" not in system
    assert body.endswith("to your partners.")
