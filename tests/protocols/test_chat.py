"""The exact prompts of the chat, turn by turn."""

from coterie.protocols.chat import PLAIN, POCKET, Chat
from coterie.types import POLICY, Message
from tests.fakes import task

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


def test_three_seats_are_told_apart():
    three = Chat(("A", "B", "C", "A"), 10, 10, True, POCKET)
    ((_, body),) = three.view(task(1, A=("a 1",), B=("b 2",), C=("c 3",)), "C", SAID, final=False).messages
    assert "Partner A: I have 3.\nPartner B: I have 4." in body
    assert three.seats == ("A", "B", "C")


def test_a_task_without_facts_for_a_seat_is_named():
    assert Chat(ORDER, 10, 10, True, POCKET).check(task(1, A=("a 1",))) == "has no facts for seat B"
    assert Chat(ORDER, 10, 10, True, POCKET).check(task()) is None
