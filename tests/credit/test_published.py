"""Each rule of the published recipes on a group worked out by hand from their descriptions."""

import pytest

from coterie.credit.own_and_readers import OwnAndReaders
from coterie.credit.per_partner import per_partner
from coterie.credit.raft import raft
from coterie.credit.readers_mean import readers_mean
from coterie.credit.team_mean import team_mean
from coterie.credit.zero_notes import ZeroNotes
from coterie.types import BASE, CoterieError
from tests.credit.games import board, chat, episode, group, say


def near(values):
    return pytest.approx(values, abs=1e-15)


def test_talk_methods_one_success_in_twelve_draws():
    """Two highest and two lowest are kept; the mean is over all twelve. Over the four kept ones it would be 1/4."""
    pool = [chat(0.0, 0.0, i) for i in range(11)] + [chat(1.0, 1.0, 11)]
    kept = group(pool[11], pool[10], pool[0], pool[1], pool=pool)
    for rule in (team_mean, per_partner):
        assert [of[0] for of in rule(kept)] == near([11 / 12, -1 / 12, -1 / 12, -1 / 12])


def test_talk_to_solve_team_reward():
    """Rewards 1, 1/2, 0, 0 with the mean 3/8; the same number for all four turns."""
    assert team_mean(group(chat(1.0, 1.0), chat(1.0, 0.0), chat(0.0, 0.0), chat(0.0, 0.0))) == [
        [0.625] * 4, [0.125] * 4, [-0.375] * 4, [-0.375] * 4
    ]  # fmt: skip


def test_message_board_readers_against_the_four_and_notes_not_in_the_batch():
    (credits,) = ZeroNotes(left_out=True)(group(board([1.0, 1.0, 0.0, 1.0])))
    assert credits == [None, None, None, None, 0.25, 0.25, -0.75, 0.25]


def test_board_writers_baseline_keeps_notes_at_zero():
    (credits,) = ZeroNotes(left_out=False)(group(board([1.0, 1.0, 0.0, 1.0], visible=2)))
    assert credits == [0.0, 0.0, 0.0, 0.0, 0.25, 0.25, -0.75, 0.25]


def test_board_writers_ring():
    """Note i is read by readers i and i - 1. Readers 1, 0, 1, 1: notes 1, 1/2, 1/2, 1, mean 3/4."""
    (credits,) = readers_mean(group(board([1.0, 0.0, 1.0, 1.0], visible=2)))
    assert credits == [0.25, -0.25, -0.25, 0.25, 0.25, -0.75, 0.25, 0.25]


def test_board_writers_own_part():
    """The proposal: own correctness (1, 0, 0, 0 with the mean 1/4) plus the readers' part of the test above."""
    ring = group(board([1.0, 0.0, 1.0, 1.0], notes=[1.0, 0.0, 0.0, 0.0], visible=2))
    assert OwnAndReaders(1.0)(ring)[0][:4] == [0.75 + 0.25, -0.25 - 0.25, -0.25 - 0.25, -0.25 + 0.25]
    assert OwnAndReaders(0.5)(ring)[0][:4] == [0.875, -0.375, -0.375, -0.125]
    assert OwnAndReaders(1.0)(ring)[0][4:] == [0.25, -0.75, 0.25, 0.25]


def test_own_part_needs_graded_notes():
    with pytest.raises(CoterieError, match=r'credit.kind = "own_and_readers".*protocol.kind'):
        OwnAndReaders(1.0)(group(chat(1.0, 0.0), chat(1.0, 1.0)))


def test_raft():
    """A half-won chat is lost, losers stay at zero, and a group that only wins is imitated too."""
    assert raft(group(chat(1.0, 1.0), chat(1.0, 0.0), chat(0.0, 0.0), chat(1.0, 1.0, failed=True))) == [
        [1.0] * 4, [0.0] * 4, [0.0] * 4, [0.0] * 4
    ]  # fmt: skip
    assert raft(group(chat(1.0, 1.0), chat(1.0, 1.0))) == [[1.0] * 4] * 2


MIXED = group(chat(1.0, 1.0), chat(1.0, 0.0), chat(0.0, 0.0, partner=BASE), chat(1.0, 0.0, partner=BASE))


def test_mixed_as_published_has_one_mean_over_all_four_chats():
    """Rewards 1, 1/2 with the trained partner and 0, 1/2 with the base. One mean (1/2) tells A that its better chat with the base
    was worth nothing and its worse chat with itself was no worse than average."""
    assert [of[0] for of in team_mean(MIXED)] == [0.5, 0.0, -0.5, 0.0]


def test_mixed_with_a_mean_for_each_partner():
    assert [of[0] for of in per_partner(MIXED)] == [0.25, -0.25, -0.25, 0.25]


def test_a_cast_with_one_episode_has_nothing_to_be_compared_with():
    assert per_partner(group(chat(1.0, 1.0), chat(0.0, 0.0), chat(0.3, 0.3, partner=BASE))) == [[0.5] * 4, [-0.5] * 4, [0.0] * 4]


def test_readers_of_several_boards_share_one_mean():
    """Readers and notes of both boards are compared with all eight: a board that did better pays all of its notes."""
    first, second = readers_mean(group(board([1.0, 1.0, 1.0, 1.0], index=0), board([0.0, 0.0, 0.0, 0.0], index=1)))
    assert (first, second) == ([0.5] * 8, [-0.5] * 8)


def test_a_note_that_nobody_heard_is_worth_nothing_and_in_no_mean():
    """Two notes; the only reader heard the first. With the second in the mean, the first would get 1/4 in the better episode."""

    def play(score):
        return episode([say("writer 0", 0), say("writer 1", 1), say("reader 0", 2, final=True, heard=(0,), score=score)])

    assert readers_mean(group(play(1.0), play(0.0))) == [[0.5, 0.0, 0.5], [-0.5, 0.0, -0.5]]


def test_in_a_chat_an_early_message_is_heard_by_both_answers():
    """A's answer is a final message: it has its own part only, although B hears it."""
    (first, second) = readers_mean(group(chat(1.0, 0.0), chat(0.0, 0.0)))
    assert first == [0.25, 0.25, 0.75, -0.25]
    assert second == [-0.25] * 4
