from dataclasses import replace

import pytest

from coterie.credit.base import plain
from coterie.credit.leave_one_out import LeaveOneOut
from coterie.credit.shaping import Shaped
from coterie.credit.team_mean import team_mean
from coterie.credit.zero_notes import ZeroNotes
from coterie.types import BASE, POLICY
from tests.credit.games import board, chat, episode, group, say


def talk(a_tokens, b_tokens, stops=("eos", "eos"), player=POLICY, failed=False):
    said = [say("A", 0, tokens=a_tokens, stop=stops[0])]
    said += [say("B", 1, final=True, heard=(0,), score=1.0, tokens=b_tokens, stop=stops[1], player=player)]
    return episode(said, failed=failed)


def test_length_is_charged_against_messages_of_the_same_kind():
    """A's notes have 100 and 300 tokens (mean 200), B's answers 500 and 500. One mean over all would charge B for answering."""
    shaped = Shaped(plain(team_mean), length_cost=0.1, stop_bonus=0.0).advantages(group(talk(100, 500), talk(300, 500)), {})
    assert shaped[0] == [pytest.approx(0.1), 0.0]
    assert shaped[1] == [pytest.approx(-0.1), 0.0]


def test_a_message_that_ends_by_itself_gets_the_bonus():
    played = group(talk(5, 5), talk(5, 5), talk(5, 5), talk(5, 5, stops=("length", "eos")))
    shaped = Shaped(plain(team_mean), length_cost=0.0, stop_bonus=0.2).advantages(played, {})
    assert [of[0] for of in shaped] == pytest.approx([0.05, 0.05, 0.05, -0.15])
    assert [of[1] for of in shaped] == [0.0] * 4


def test_writers_share_a_mean_and_readers_another():
    notes = [say(f"writer {i}", i, tokens=n) for i, n in enumerate((100, 200))]
    answers = [say(f"reader {j}", 2 + j, final=True, heard=(0, 1), score=1.0, tokens=n) for j, n in enumerate((700, 900))]
    (shaped,) = Shaped(plain(team_mean), length_cost=1.0, stop_bonus=0.0).advantages(group(episode([*notes, *answers])), {})
    assert shaped == pytest.approx([0.5, -0.5, 1.0, -1.0])


def test_a_seat_is_not_charged_for_its_answer_nor_for_its_role():
    """One chat whose four messages have 100, 200, 300 and 400 tokens, all of different kinds: nothing to compare. Breaks when the
    mean is over all of a seat's messages, or over all notes of both seats."""
    said = [replace(m, ids=(3,) * 100 * (m.turn + 1)) for m in chat(1.0, 1.0).messages]
    assert Shaped(plain(team_mean), length_cost=1.0, stop_bonus=0.0).advantages(group(episode(said)), {}) == [[0.0] * 4]


def test_it_is_added_to_what_the_rule_pays():
    shaped = Shaped(plain(team_mean), length_cost=0.1, stop_bonus=0.0).advantages(group(chat(1.0, 1.0), chat(0.0, 0.0)), {})
    assert shaped == [[0.5] * 4, [-0.5] * 4]


def test_left_out_stays_left_out():
    (shaped,) = Shaped(plain(ZeroNotes(True)), 0.1, 0.1).advantages(group(board([1.0, 0.0])), {})
    assert shaped == [None, None, 0.5, -0.5]


def test_other_players_and_failed_episodes_are_left_as_they_are_and_in_no_mean():
    """The base answers with 9,000 tokens and the failed episode with 7,000; the policy's answers of 100 and 300 are what counts."""
    played = group(talk(5, 100), talk(5, 300), talk(5, 9000, player=BASE), talk(7000, 7000, failed=True))
    shaped = Shaped(plain(team_mean), length_cost=0.1, stop_bonus=0.0).advantages(played, {})
    assert [of[1] for of in shaped] == [pytest.approx(0.1), pytest.approx(-0.1), 0.0, 0.0]
    assert [of[0] for of in shaped] == [0.0] * 4


def test_probes_are_those_of_the_rule():
    played = group(chat(1.0, 0.0))
    assert Shaped(LeaveOneOut(2), 0.1, 0.0).probes(played) == LeaveOneOut(2).probes(played)
