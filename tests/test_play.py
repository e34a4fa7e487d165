"""Episodes at their own pace, and what is recorded of them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import breadth_first_order

from coterie.engines.base import Sampler
from coterie.hall import Hall, Plan, Replay
from coterie.play import answer_probes, longest_request, play
from coterie.protocols.base import Ask, Protocol
from coterie.protocols.chat import POCKET, Chat
from coterie.types import BASE, POLICY, CoterieError, Group, Probe, View
from tests.fakes import EqualText, ScriptedEngine, chat_tokenizer, task

TOKENIZER = chat_tokenizer()
CHAT = Chat(("A", "B", "A", "B"), message_tokens=20, final_tokens=30, deliver=True, wording=POCKET)


def hall(engine, protocol=CHAT, seed=0):
    return Hall(protocol, engine, TOKENIZER, EqualText(), Sampler(0.9), seed)


def plans(count, cast=None):
    return [Plan(task(i), 0, cast or {"A": POLICY, "B": POLICY}, ("test",)) for i in range(count)]


def test_messages_record_what_was_sampled():
    engine = ScriptedEngine(TOKENIZER, lambda r: " 7 ")
    engine.refresh(5)
    (episode,) = play(plans(1, {"A": POLICY, "B": BASE}), hall(engine))
    assert [(m.seat, m.turn, m.final, m.player) for m in episode.messages] == [
        ("A", 0, False, POLICY), ("B", 1, False, BASE), ("A", 2, True, POLICY), ("B", 3, True, BASE)
    ]  # fmt: skip
    first = episode.messages[0]
    assert first.ids == (*TOKENIZER._plain_ids(" 7 "), TOKENIZER.stop_ids[0])
    assert (first.text, first.stop, first.temperature, first.policy_version) == ("7", "eos", 0.9, 5)
    assert len(first.logprobs) == len(first.ids)
    assert (episode.scores, episode.reward) == ({"A": 1.0, "B": 1.0}, 1.0)


def test_a_cut_message_has_no_end_token_and_is_delivered_as_it_is():
    engine = ScriptedEngine(TOKENIZER, lambda r: "x" * 100)
    (episode,) = play(plans(1), hall(engine))
    first = episode.messages[0]
    assert (first.stop, len(first.ids), first.text) == ("length", 20, "x" * 20)
    assert TOKENIZER.stop_ids[0] not in first.ids
    assert f"Partner: {'x' * 20}\n" in TOKENIZER.decode(episode.messages[1].prompt_ids)


def test_episodes_do_not_wait_for_each_other():
    """One episode's first message takes 50 steps; the other's four turns are over long before. Breaks under a barrier."""
    engine = ScriptedEngine(TOKENIZER, lambda r: "7", delay=lambda r: 50 if "slow" in TOKENIZER.decode(r.prompt_ids) else 1)
    slow = Plan(task(0, A=("slow 3",), B=("Sue has 4.",)), 0, {"A": POLICY, "B": POLICY}, ("test",))
    play([slow, *plans(1)], hall(engine))
    fast_asked = [when for when, _, r in engine.log if "slow" not in TOKENIZER.decode(r.prompt_ids)]
    assert max(fast_asked[:4]) < 10


def test_a_failed_grader_is_an_error_and_not_a_zero():
    engine = ScriptedEngine(
        TOKENIZER, lambda r: "?" if "Answer" in TOKENIZER.decode(r.prompt_ids) and "Sue" in TOKENIZER.decode(r.prompt_ids) else "7"
    )
    (episode,) = play(plans(1), hall(engine))
    assert episode.reward is None
    assert episode.scores == {"A": 1.0}
    assert episode.errors == {"B": "question mark"}


def test_noise_belongs_to_the_message_and_not_to_the_batch():
    def noise(count, seed=0):
        engine = ScriptedEngine(TOKENIZER, lambda r: "7")
        play(plans(count), hall(engine, seed=seed))
        return {(TOKENIZER.decode(r.prompt_ids), tuple(r.uniforms)) for _, _, r in engine.log}

    assert noise(1) < noise(3)
    assert len({uniforms for _, uniforms in noise(3)}) == 12
    assert not noise(1) & noise(1, seed=1)


def test_an_episode_that_outgrows_the_context_is_a_counted_error_and_the_others_go_on():
    class Small(ScriptedEngine):
        def submit(self, request):
            if "slow" in TOKENIZER.decode(request.prompt_ids) and "Answer" in TOKENIZER.decode(request.prompt_ids):
                raise CoterieError("a prompt of 9 tokens does not fit")
            return super().submit(request)

    long = Plan(task(0, A=("slow 3",), B=("Sue has 4.",)), 0, {"A": POLICY, "B": POLICY}, ("test",))
    first, second = play([long, *plans(1)], hall(Small(TOKENIZER, lambda r: "7")))
    assert (first.reward, first.errors, len(first.messages)) == (None, {"": "a prompt of 9 tokens does not fit"}, 2)
    assert second.reward == 1.0


def test_the_longest_request_counts_messages_at_their_caps():
    """A's last prompt holds its own first message and B's, at 20 tokens (bytes, here) each."""
    prompt, cap = longest_request(task(), CHAT, TOKENIZER)
    empty = len(TOKENIZER.encode(CHAT.view(task(), "B", (), True)))
    assert cap == 30
    assert prompt >= empty + 3 * 20
    with pytest.raises(CoterieError, match="asked for no message"):
        longest_request(task(), Chat((), 1, 1, True, POCKET), TOKENIZER)


def test_a_protocol_without_a_final_message_is_counted_as_an_error():
    class Mute:
        seats = ("A",)

        async def play(self, task, table):
            await table.say("A", View((("user", "hi"),)), max_tokens=5)

    (episode,) = play([Plan(task(), 0, {"A": POLICY}, ())], hall(ScriptedEngine(TOKENIZER, lambda r: "7"), Mute()))
    assert episode.reward is None
    assert episode.errors == {"": "no seat gave a final message"}


@dataclass(frozen=True)
class Scripted(Protocol):
    """Rounds of asks, given as seat: turns that it hears (None: all). Only the messages of the last round are final."""

    rounds: tuple[Mapping[str, tuple[int, ...] | None], ...]

    @property
    def seats(self):
        return tuple(dict.fromkeys(seat for asks in self.rounds for seat in asks))

    async def play(self, task, table):
        for number, asks in enumerate(self.rounds, start=1):
            final = number == len(self.rounds)
            said = await table.say_all(
                [
                    Ask(seat, self.view(task, seat, heard, table.messages), 20, final=final, graded=seat.islower(), heard=heard)
                    for seat, heard in asks.items()
                ]
            )
            assert said == table.messages[-len(asks) :]

    def view(self, task, seat, heard, messages):
        shown = [m.text for m in messages if (heard is None or m.turn in heard) and (m.seat == seat or not m.hidden)]
        return View((("user", f"{task.question} {seat} {' '.join(shown)}"),))


def scripted_plan(protocol, number=0, noise=("test",), replay=None):
    return Plan(task(number), 0, dict.fromkeys(protocol.seats, POLICY), noise, replay)


def test_say_all_asks_at_once_and_returns_in_the_order_of_the_asks():
    """B is slowest, C quickest. Breaks when asks are made one after the other, or are returned as they end."""
    protocol = Scripted(({"A": (), "B": (), "C": ()}, {"A": None}))
    delays = {"A": 5, "B": 9, "C": 2}

    def seat(request):
        return TOKENIZER.decode(request.prompt_ids).rpartition(") ")[2].split(" ")[0]

    engine = ScriptedEngine(TOKENIZER, lambda r: f"from {seat(r)}", delay=lambda r: delays[seat(r)])
    (episode,) = play([scripted_plan(protocol)], hall(engine, protocol))
    assert [when for when, _, _ in engine.log] == [0, 0, 0, 9]
    assert [(m.seat, m.turn, m.text) for m in episode.messages[:3]] == [(s, t, f"from {s}") for t, s in enumerate("ABC")]
    assert "from A from B from C" in TOKENIZER.decode(episode.messages[3].prompt_ids)


def test_one_slow_message_of_several_holds_up_its_own_episode_only():
    protocol = Scripted(({"A": (), "B": ()}, {"A": None, "B": None}))
    engine = ScriptedEngine(TOKENIZER, lambda r: "7", lambda r: 50 if TOKENIZER.decode(r.prompt_ids).endswith("(0) B") else 1)
    play([scripted_plan(protocol, number) for number in (0, 1)], hall(engine, protocol))
    asked = {number: [when for when, _, r in engine.log if f"({number})" in TOKENIZER.decode(r.prompt_ids)] for number in (0, 1)}
    assert asked == {0: [0, 0, 50, 50], 1: [0, 0, 1, 1]}


def test_a_message_records_what_it_heard():
    protocol = Scripted(({"A": None, "B": ()}, {"C": None, "D": (1,)}, {"A": (3, 0)}))
    (episode,) = play([scripted_plan(protocol)], hall(ScriptedEngine(TOKENIZER, lambda r: "7"), protocol))
    assert [m.heard for m in episode.messages] == [(), (), (0, 1), (1,), (3, 0)]


def test_what_is_graded_has_a_score_and_only_final_messages_count_for_the_team():
    protocol = Scripted(({"a": (), "B": ()}, {"C": ()}))
    texts = iter(["3", "7", "7"])
    (episode,) = play([scripted_plan(protocol)], hall(ScriptedEngine(TOKENIZER, lambda r: next(texts)), protocol))
    assert [m.score for m in episode.messages] == [0.0, None, 1.0]
    assert (episode.scores, episode.reward) == ({"C": 1.0}, 1.0)


def test_a_request_that_does_not_fit_ends_its_episode_while_its_neighbours_are_still_in_the_engine():
    class Small(ScriptedEngine):
        def submit(self, request):
            if "(0) B" in TOKENIZER.decode(request.prompt_ids):
                raise CoterieError("too long")
            return super().submit(request)

    protocol = Scripted(({"A": (), "B": (), "C": ()}, {"A": None}))
    engine = Small(TOKENIZER, lambda r: "7")
    first, second = play([scripted_plan(protocol, number) for number in (0, 1)], hall(engine, protocol))
    assert (first.reward, first.errors, first.messages) == (None, {"": "too long"}, ())
    assert (second.reward, len(second.messages)) == (1.0, 4)


WEB = Scripted(({"A": (), "B": ()}, {"C": (0,), "D": (1,), "A": (0, 1)}, {"e": (2,), "f": (3,), "g": (3, 4), "h": (2, 3)}))
"""C heard A's first message, e and h heard C; D, f and g heard neither, though g heard what A said next."""


def replayed(turn, speak="8", protocol=WEB):
    old_engine = ScriptedEngine(TOKENIZER, lambda r: "7")
    (old,) = play([scripted_plan(protocol)], hall(old_engine, protocol))
    engine = ScriptedEngine(TOKENIZER, lambda r: speak)
    (new,) = play([scripted_plan(protocol, replay=Replay(old, turn), noise=("test", "replay", turn, 0))], hall(engine, protocol))
    return old, new, old_engine, engine


def test_a_replay_takes_over_what_did_not_hear_the_hidden_message_directly_or_through_others():
    """A's own next message (turn 4) stays: a message is not withheld from the seat that said it."""
    old, new, _, engine = replayed(0)
    kept = [a.ids is b.ids for a, b in zip(old.messages, new.messages, strict=True)]
    assert kept == [True, True, False, True, True, False, True, True, False]
    assert len(engine.log) == 3
    assert [m.hidden for m in new.messages] == [True] + [False] * 8
    assert [m for turn, m in enumerate(new.messages) if kept[turn] and turn] == [
        m for turn, m in enumerate(old.messages) if kept[turn] and turn
    ]
    assert " 7" not in TOKENIZER.decode(new.messages[2].prompt_ids)
    assert (old.reward, new.reward) == (1.0, 0.5)


@given(st.data())
def test_a_replay_asks_again_exactly_those_who_can_be_reached_from_the_hidden_message(data):
    """Any web of who hears whom, every seat speaking once: the oracle is graph reachability, by scipy."""
    count = data.draw(st.integers(2, 7))
    heard = [tuple(i for i in range(turn) if data.draw(st.booleans())) for turn in range(count)]
    hidden = data.draw(st.integers(0, count - 1))
    hears = np.zeros((count, count), bool)
    for turn, turns in enumerate(heard):
        hears[list(turns), turn] = True
    reached = set(breadth_first_order(hears, hidden, return_predecessors=False)) - {hidden}
    protocol = Scripted(tuple({f"s{turn}": turns} for turn, turns in enumerate(heard)))
    old, new, _, _ = replayed(hidden, protocol=protocol)
    assert {t for t in range(count) if old.messages[t].ids is not new.messages[t].ids} == reached


def test_a_seat_that_another_speaks_in_place_of_is_not_taken_over():
    """A protocol may choose who speaks next by what was said."""

    class Choosing(Scripted):
        async def play(self, task, table):
            first = await table.say("A", View((("user", "a"),)), max_tokens=5, heard=())
            await table.say("C" if first.hidden else "B", View((("user", "b"),)), max_tokens=5, final=True, heard=())

    protocol = Choosing(({"A": ()}, {"B": (), "C": ()}))
    old, new, _, _ = replayed(0, protocol=protocol)
    assert [(m.seat, m.text) for m in old.messages + new.messages] == [("A", "7"), ("B", "7"), ("A", "7"), ("C", "8")]


def test_a_replay_has_noise_of_its_own_and_each_repeat_too():
    """With the episode's noise a message sampled anew would be the old one wherever its prompt changes little."""
    engine = ScriptedEngine(TOKENIZER, lambda r: "7")
    here = hall(engine, WEB)
    (old,) = play([scripted_plan(WEB)], here)
    group = Group(task(0), (old,), (old,))
    probes = [Probe(0, 0), Probe(0, 0, 1), Probe(0, 1)]
    (replays,) = answer_probes([group], [probes], here, [("test",)])
    assert list(replays) == probes
    asked = [tuple(r.uniforms) for _, _, r in engine.log]
    assert len(asked) == 9 + 3 + 3 + 5  # of turn 1 heard D, A, and f, g, h through them
    assert len(set(asked)) == len(asked)
    again = ScriptedEngine(TOKENIZER, lambda r: "7")
    answer_probes([group], [probes], hall(again, WEB), [("test",)])
    assert [tuple(r.uniforms) for _, _, r in again.log] == asked[9:]


def test_what_a_replay_takes_over_is_not_graded_again():
    graded = []

    class Counting(EqualText):
        def grade(self, answers):
            graded.append([text for text, _ in answers])
            return super().grade(answers)

    engine = ScriptedEngine(TOKENIZER, lambda r: "7")
    here = replace(hall(engine, WEB), grader=Counting())
    (old,) = play([scripted_plan(WEB)], here)
    (new,) = play([scripted_plan(WEB, replay=Replay(old, 0))], here)
    assert [len(texts) for texts in graded] == [4, 2]
    assert new.scores == {"e": 1.0, "f": 1.0, "g": 1.0, "h": 1.0}
