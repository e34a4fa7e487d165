"""Others' text as rows: prompt, completion and advantage by hand."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.credit.team_mean import team_mean
from coterie.engines.base import Sampler
from coterie.hall import Hall
from coterie.learn.rows import rows_from_group
from coterie.protocols.chat import PLAIN, Chat
from coterie.protocols.pages import Page
from coterie.protocols.solo import Solo
from coterie.swarm.foreign import Foreign, as_group, divided, question_of
from coterie.types import CoterieError, Task, View
from tests.fakes import SPECIAL, EqualText, ScriptedEngine, byte_tokenizer, chat_tokenizer
from tests.swarm.nodes import ANN, regenerate, rollouts

TOKENIZER = chat_tokenizer()
END = byte_tokenizer().convert_tokens_to_ids("<|end|>")
CAP = 12
HALL = Hall(
    Solo(CAP, Page("Be short.", "{question}")),
    ScriptedEngine(TOKENIZER, lambda request: ""),
    TOKENIZER,
    EqualText(),
    Sampler(0.5),
    0,
)


def made(index: int = 0) -> Task:
    task = regenerate(rollouts(index).ref)
    assert task is not None
    return task


def foreign(completions: tuple[str, ...], rewards: tuple[float, ...], **more) -> Foreign:
    return Foreign(ANN.node, rollouts(0, completions), rewards, **more)


def group_of(completions, rewards, **more):
    return as_group(foreign(completions, rewards, **more), made(), HALL)


def test_rows_by_hand():
    """One right of four: the mean is 1/4. One token a byte, so ids are bytes; the sampler's temperature is the node's own."""
    group = group_of(("7", "8", "", " 7\n"), (1.0, 0.0, 0.0, 0.0))
    rows = rows_from_group(group, team_mean(group))
    prompt = TOKENIZER.encode(View((("system", "Be short."), ("user", "What is 0 + 7 - 0?"))))
    assert [row.prompt_ids for row in rows] == [prompt] * 4
    assert [byte_tokenizer().decode(row.completion_ids) for row in rows] == ["7<|end|>", "8<|end|>", "<|end|>", " 7\n<|end|>"]
    assert [row.advantage for row in rows] == [0.75, -0.25, -0.25, -0.25]
    assert {row.temperature for row in rows} == {0.5}


def test_what_does_not_fit_is_left_out_but_counts_in_the_baseline():
    """With its end a text may be as long as the cap. A text of the cap's length is one that the cap cut: it had no end."""
    group = group_of(("x" * (CAP - 1), "x" * CAP, "7"), (0.0, 0.0, 1.0))
    assert [episode.index for episode in group.episodes] == [0, 2]
    assert [a for (a,) in team_mean(group)] == pytest.approx([-1 / 3, 2 / 3])
    narrow = replace(HALL, engine=ScriptedEngine(TOKENIZER, lambda request: ""))
    narrow.engine.context_length = len(question_of(made(), HALL.protocol, HALL.tokenizer)[0]) + 3
    assert [e.index for e in as_group(foreign(("77", "777"), (0.0, 1.0)), made(), narrow).episodes] == [0]


def test_over_the_standard_deviation_by_hand():
    """Rewards 1, 0, 0, 0: mean 1/4, sum of squares 9/16 + 3/16 = 3/4, over n - 1 = 3: variance 1/4, deviation 1/2."""
    group = group_of(("7", "8", "9", "1"), (1.0, 0.0, 0.0, 0.0))
    found = divided([list(a) for a in team_mean(group)], group.pool_rewards)
    assert [a for (a,) in found] == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-7)
    assert [a for (a,) in found] != [1.5, -0.5, -0.5, -0.5], "1e-8 is added"
    assert divided([[0.0], [0.0]], (1.0, 1.0)) == [[0.0], [0.0]]
    assert divided([[None, 0.0]], (1.0, None)) == [[None, 0.0]]


@given(st.lists(st.one_of(st.sampled_from([*SPECIAL, "<|", "\n"]), st.text(max_size=4)), max_size=3).map("".join))
def test_no_text_holds_a_control_token(text):
    """Breaks when text is encoded by the model's own tokenizer, which knows its control tokens."""
    wide = replace(HALL, protocol=Solo(400, Page("Be short.", "{question}")))
    (episode, _) = as_group(foreign((text, "7"), (0.0, 1.0)), made(), wide).episodes
    ids = episode.messages[0].ids
    assert [i for i in ids if i in TOKENIZER.control_ids] == [END]
    assert ids[-1] == END
    assert TOKENIZER.decode(ids[:-1]) == text


@given(st.lists(st.tuples(st.text(max_size=5), st.floats(0, 1), st.lists(st.floats(-9, 0), max_size=3)), min_size=1, max_size=3))
def test_a_record_comes_back_through_json(said):
    texts, rewards, logprobs = zip(*said, strict=True)
    for kept in (None, tuple(tuple(of) for of in logprobs)):
        one = foreign(texts, rewards, logprobs=kept)
        assert Foreign.of_record(json.loads(json.dumps(one.record()))) == one


def test_kept_logprobs_are_used():
    group = group_of(("7", "x" * 99), (1.0, 0.0), logprobs=((-0.5, -0.25), ()))
    assert [row.logprobs for row in rows_from_group(group, team_mean(group))] == [(-0.5, -0.25)]


def test_a_talk_of_several_messages_cannot_be_shared():
    talk = replace(HALL, protocol=Chat(("A", "B"), 8, 8, True, PLAIN, "rebuilt"))
    with pytest.raises(CoterieError, match="answers of one message each"):
        question_of(replace(made(), private={"A": ("One.",), "B": ("Two.",)}), talk.protocol, talk.tokenizer)
    with pytest.raises(CoterieError, match="has no facts for seat A"):
        question_of(made(), talk.protocol, talk.tokenizer)
