"""Which replays are asked for, and what their answers pay."""

from dataclasses import replace

import pytest

from coterie.credit.leave_one_out import LeaveOneOut, hearers
from coterie.engines.base import Sampler
from coterie.hall import Hall, Plan
from coterie.play import answer_probes, play
from coterie.protocols.base import Protocol
from coterie.types import BASE, POLICY, Probe, View
from tests.credit.games import board, chat, episode, group, say
from tests.fakes import EqualText, ScriptedEngine, chat_tokenizer, task


def test_probes_of_a_chat():
    """Turns 0, 1 and 2 are heard by the partner; the last is heard by nobody."""
    assert LeaveOneOut(1).probes(group(chat(1.0, 0.0))) == [Probe(0, 0), Probe(0, 1), Probe(0, 2)]


def test_probes_are_repeated_and_only_for_kept_graded_episodes_and_the_policy():
    """B is the base in the third: only A's messages are trained. The second was not graded, the fourth not kept."""
    played = [chat(1.0, 0.0), chat(1.0, 0.0, failed=True), chat(0.0, 0.0, partner=BASE), chat(0.0, 0.0)]
    probes = LeaveOneOut(2).probes(group(*played[:3], pool=played))
    assert [(p.episode, p.turn, p.repeat) for p in probes] == [
        (0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (0, 2, 0), (0, 2, 1), (2, 0, 0), (2, 0, 1), (2, 2, 0), (2, 2, 1)
    ]  # fmt: skip


def test_own_notes_and_unheard_notes_are_not_asked_about():
    """A's second note is seen by A alone; C hears B, but C's message reaches nobody's answer."""
    said = [say("A", 0), say("B", 1), say("C", 2, heard=(1,)), say("A", 3, final=True, heard=(0,), score=1.0)]
    assert LeaveOneOut(1).probes(group(episode(said))) == []


def test_chat_by_hand():
    """Without turn 0 nobody solves it, without turn 1 only B does, without turn 2 B still does. Both answers were right, and the
    pool's other chat was all wrong: own parts 1/2 for A and for B."""
    played = group(chat(1.0, 1.0), pool=[chat(1.0, 1.0), chat(0.0, 0.0)])
    replays = {Probe(0, 0): chat(0.0, 0.0), Probe(0, 1): chat(0.0, 1.0), Probe(0, 2): chat(1.0, 1.0)}
    assert LeaveOneOut(1).advantages(played, replays) == [[1.0, 0.5, 0.5, 0.5]]


def test_an_answer_is_paid_for_its_own_score_and_for_the_partner_it_helps():
    played = group(chat(0.0, 1.0), pool=[chat(0.0, 1.0), chat(1.0, 1.0)])
    replays = {Probe(0, 0): chat(0.0, 1.0), Probe(0, 1): chat(0.0, 1.0), Probe(0, 2): chat(0.0, 0.0)}
    assert LeaveOneOut(1).advantages(played, replays) == [[0.0, 0.0, -0.5 + 1.0, 0.0]]


def test_board_note_is_paid_its_readers_only():
    """Ring of three, two notes each: note 0 is read by readers 0 and 2. Reader 1 of the replay is not looked at."""
    played = group(board([1.0, 1.0, 0.0], visible=2))
    nothing = board([1.0, 1.0, 0.0], visible=2)
    replays = {Probe(0, 0): board([0.0, 0.0, 0.0], visible=2), Probe(0, 1): nothing, Probe(0, 2): nothing}
    assert LeaveOneOut(1).advantages(played, replays)[0][:3] == [0.5, 0.0, 0.0]


def test_mean_over_repeats_and_the_failed_ones_left_out():
    played = group(chat(1.0, 1.0))
    replays = {Probe(0, t, r): chat(1.0, 1.0) for t in range(3) for r in range(3)}
    replays |= {Probe(0, 0, 0): chat(0.0, 0.0), Probe(0, 1, 0): chat(0.0, 0.0), Probe(0, 1, 1): chat(0.0, 0.0, failed=True)}
    assert LeaveOneOut(3).advantages(played, replays)[0] == [pytest.approx(1 / 3), 0.5, 0.0, 0.0]


def test_no_replay_graded_pays_nothing_at_all():
    """Turn 2 is an answer with an own part of 1/2; without a replay nobody knows what it did to B."""
    played = group(chat(1.0, 1.0), pool=[chat(1.0, 1.0), chat(0.0, 0.0)])
    replays = {Probe(0, t): chat(1.0, 1.0) for t in range(2)} | {Probe(0, 2): chat(0.0, 0.0, failed=True)}
    assert LeaveOneOut(1).advantages(played, replays) == [[0.0, 0.0, 0.0, 0.5]]


def test_a_replay_that_failed_is_not_used_even_where_answers_were_graded():
    """Some other grade failed (a note's, for example): the answers' scores are there, but the replay has no reward."""
    played = group(board([1.0, 1.0]))
    broken = replace(board([0.0, 0.0]), reward=None, errors={"writer 1": "no grade"})
    assert LeaveOneOut(1).advantages(played, {Probe(0, 0): broken, Probe(0, 1): board([0.0, 1.0])})[0][:2] == [0.0, 0.5]


def test_a_replay_in_which_a_hearer_gave_no_answer_is_not_used():
    """As a protocol of a user's might end early; there is no score to compare B's with."""
    early = episode(chat(0.0, 0.0).messages[:3])
    replays = {Probe(0, t, r): chat(1.0, 1.0) for t in range(3) for r in range(2)} | {Probe(0, 0, 0): early}
    assert LeaveOneOut(2).advantages(group(chat(1.0, 1.0)), replays)[0][0] == 0.0


def test_an_unanswered_probe_is_no_zero():
    with pytest.raises(KeyError):
        LeaveOneOut(1).advantages(group(chat(1.0, 0.0)), {})


# who counts as a hearer must be who is sampled anew: `play` decides that, so it is the oracle here

TALKS = {
    "chat": [("A", ()), ("B", (0,)), ("A", (0, 1)), ("B", (0, 1, 2))],
    "cut chat": [("A", ()), ("B", ()), ("A", (0,)), ("B", (1,))],
    "chain": [("A", ()), ("B", (0,)), ("C", (1,)), ("A", (0, 2)), ("B", (1,)), ("C", (2,))],
    "own memory": [("A", ()), ("A", (0,)), ("B", (1,)), ("A", (0, 1)), ("C", ()), ("B", (4,))],
    "ring": [("w0", ()), ("w1", ()), ("w2", ()), ("r0", (0, 1)), ("r1", (1, 2)), ("r2", (2, 0))],
}


class Scripted(Protocol):
    def __init__(self, talk):
        self.talk = talk

    async def play(self, task, table):
        for turn, (seat, heard) in enumerate(self.talk):
            last = seat not in [s for s, _ in self.talk[turn + 1 :]]
            await table.say(seat, View((("user", f"{turn}"),)), max_tokens=5, final=last and seat[0] != "w", heard=heard)


@pytest.mark.parametrize("name", TALKS)
def test_hearers_are_the_answers_that_a_replay_samples_anew(name):
    tokenizer = chat_tokenizer()
    hall = Hall(Scripted(TALKS[name]), ScriptedEngine(tokenizer, lambda r: "7"), tokenizer, EqualText(), Sampler(0.9), 0)
    cast = {seat: POLICY for seat, _ in TALKS[name]}
    (played,) = play([Plan(task(), 0, cast, ("test",))], hall)
    probes = [Probe(0, turn) for turn in range(len(TALKS[name]))]
    (replays,) = answer_probes([group(played)], [probes], hall, [("test",)])
    last = {m.seat: m.turn for m in played.messages if m.final}
    for probe in probes:
        old, new = played.messages, replays[probe].messages
        anew = [seat for seat, turn in last.items() if new[turn].ids is not old[turn].ids]
        assert hearers(played, old[probe.turn]) == anew, probe
