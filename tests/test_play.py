"""Episodes at their own pace, and what is recorded of them."""

import pytest

from coterie.engines.base import Sampler
from coterie.hall import Hall, Plan
from coterie.play import longest_request, play
from coterie.protocols.chat import POCKET, Chat
from coterie.types import BASE, POLICY, CoterieError, View
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
