"""Rounds of answers, and the vote of equal budget that a debate must beat."""

from dataclasses import replace

import pytest

from coterie.credit.per_role import per_role
from coterie.evaluate import cross_casts
from coterie.hall import Replay
from coterie.protocols.debate import PLAIN, POCKET, Debate
from coterie.types import Group, Task
from tests.fakes import task
from tests.protocols.scripted import note, number, played, prompt

STORY = Task("p", "Tom has 3. Sue has 4. How many?", "7", "How many?", meta={"facts": ("Tom has 3.", "Sue has 4.")})
LATEST = tuple(note(f"copy {i}", i, f"answer {i}") for i in range(3))


def debate(rounds=2, deliver=True, vote=True, wording=POCKET, copies=3):
    return Debate(copies, rounds, deliver, vote, 30, wording, number)


def test_later_rounds_hear_the_round_before_and_only_the_last_is_final():
    protocol = debate(rounds=3)
    episode = played(protocol, task(), ["10", "11", "12", "20", "21", "22", "7", "7", "3"])
    assert [m.heard for m in episode.messages] == [()] * 3 + [(0, 1, 2)] * 3 + [(3, 4, 5)] * 3
    assert [m.final for m in episode.messages] == [False] * 6 + [True] * 3
    assert [m.score for m in episode.messages] == [0.0] * 6 + [1.0, 1.0, 0.0]
    assert protocol.seats == ("copy 0", "copy 1", "copy 2")
    last = prompt(episode.messages[7])
    assert "You: 21\nPartner: 22\nPartner: 20\nAnswer:" in last
    assert "11" not in last
    assert episode.reward == 1.0


def test_the_prompts_of_instruction_models_word_for_word():
    protocol = debate(wording=PLAIN)
    assert PLAIN.first.view(STORY).messages == (("system", PLAIN.first.system), ("user", STORY.question))
    assert protocol.again_view(STORY, 1, LATEST).messages == (
        ("system", PLAIN.again.system),
        (
            "user",
            f"{STORY.question}\n\nYour answer:\nanswer 1\n\nAnswer of another, number 1:\nanswer 2\n\n"
            "Answer of another, number 2:\nanswer 0",
        ),
    )


def test_a_hidden_answer_is_left_out_for_all_but_its_own_copy():
    hidden = (LATEST[0], replace(LATEST[1], hidden=True), LATEST[2])
    assert "answer 1" not in str(debate(wording=PLAIN).again_view(STORY, 0, hidden).messages)
    assert "number 2" not in str(debate(wording=PLAIN).again_view(STORY, 0, hidden).messages)
    ((_, own),) = debate().again_view(STORY, 1, hidden).messages
    assert "You: answer 1\nPartner: answer 2\nPartner: answer 0\n" in own


def test_a_replay_keeps_what_the_hidden_answers_own_copy_says_next():
    protocol = debate(rounds=3)
    old = played(protocol, task(), ["10", "11", "12", "20", "21", "22", "7", "7", "3"])
    new = played(protocol, task(), ["50", "52", "60", "61", "62"], Replay(old, 1))
    kept = [a.ids is b.ids for a, b in zip(old.messages, new.messages, strict=True)]
    assert kept == [True, True, True, False, True, False, False, False, False]


@pytest.mark.parametrize(
    ("vote", "said", "reward"),
    [
        (True, ["7", "7", "3"], 1.0),
        (True, ["3", "7", "3"], 0.0),
        (True, ["3", "7", "x"], 0.0),  # a tie: the first
        (True, ["x", "7", "x"], 1.0),  # to give no answer is no vote
        (False, ["7", "7", "3"], 2 / 3),
    ],
)
def test_the_team_reward(vote, said, reward):
    assert played(debate(1, vote=vote), task(), said).reward == reward
    assert played(debate(1, deliver=False, vote=vote), task(), said).reward == reward


def test_the_vote_of_equal_budget_is_over_every_answer():
    """Breaks when only the last round's three answers vote: 3 would win."""
    protocol = debate(2, deliver=False)
    episode = played(protocol, task(), ["7", "7", "7", "3", "3", "5"])
    assert episode.reward == 1.0
    assert all(m.final and m.heard == () for m in episode.messages)
    assert len({m.prompt_ids for m in episode.messages}) == 1
    assert protocol.seats == tuple(f"copy {draw}" for draw in range(6))
    assert len(episode.scores) == 6


def test_every_draw_of_the_vote_is_in_one_role():
    """Alone in its role, the second draw of a copy was compared with nothing and never trained."""
    episode = played(debate(2, deliver=False), task(), ["7", "7", "7", "3", "3", "5"])
    assert per_role(Group(task(), (episode,), (episode,))) == [[0.5] * 3 + [-0.5] * 3]
    assert list(cross_casts(debate(2, deliver=False).seats)) == ["copy 0=policy,others=base"]


def test_both_arms_begin_alike():
    """Same seat, turn and prompt: the same noise, so that the arms are compared on the same first answers."""
    heard, unheard = (played(debate(2, deliver), task(), ["1", "2", "3", "4", "5", "6"]) for deliver in (True, False))
    for one, other in zip(heard.messages[:3], unheard.messages[:3], strict=True):
        assert (one.seat, one.turn, one.prompt_ids) == (other.seat, other.turn, other.prompt_ids)


def test_measures_by_hand():
    """Answer 7. Copy 0: 3>7 mended; copy 1: 7>3 spoiled; copy 2: none>3 changed. Final vote: 3 (two of three)."""
    protocol = debate(2)
    episode = played(protocol, task(), ["3", "7", "x", "7", "3", "3"])
    still = played(protocol, task(), ["7", "7", "x", "7", "7", "x"])
    failed = played(protocol, task(), ["7", "7", "?", "7", "7", "7"])
    assert protocol.measures([episode, still, failed], {}) == {
        "first_score": 3 / 6,
        "final_score": 3 / 6,
        "vote_score": 1 / 2,
        "changed": 3 / 6,
        "mended": 1 / 6,
        "spoiled": 1 / 6,
    }
    off = debate(2, deliver=False)
    assert off.measures([played(off, task(), ["7", "7", "7", "3", "3", "5"])], {}) == {
        "first_score": 1.0,
        "final_score": 0.0,
        "vote_score": 1.0,
        "changed": 1.0,
        "mended": 0.0,
        "spoiled": 1.0,
    }
    assert set(protocol.measures([], {}).values()) == {None}


def test_no_half_of_the_facts_is_dealt():
    assert debate().fact_seats == ()
    assert debate().caps() == {"protocol.final_tokens": 30}
