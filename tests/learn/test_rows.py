import pytest
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import ragged_rows, row

from coterie.credit.team_mean import team_mean
from coterie.learn.rows import collate, micro_batches, row_length, rows_from_group
from coterie.types import BASE, POLICY, Episode, Group, Message, Task


def message(turn, player=POLICY, **changes):
    values = {
        "seat": "AB"[turn % 2],
        "player": player,
        "turn": turn,
        "final": turn > 1,
        "prompt_ids": (1, 2, turn),
        "ids": (7, 8, turn),
        "logprobs": (-0.5, -0.25, -1.0),
        "stop": "eos",
        "text": "x",
        "temperature": 0.7,
        "policy_version": 5,
    }
    return Message(**(values | changes))


def group(*episodes, rewards=(1.0, 0.0)):
    made = tuple(
        Episode("t", i, {}, tuple(messages), {}, reward) for i, (messages, reward) in enumerate(zip(episodes, rewards, strict=True))
    )
    return Group(Task("t", "q", "1", "q"), made, made)


def test_rows_carry_the_sampled_ids_themselves():
    made = group([message(0), message(1)], [message(0), message(1)])
    rows = rows_from_group(made, team_mean(made))
    spoken = [m for episode in made.episodes for m in episode.messages]
    assert len(rows) == 4
    for one, source in zip(rows, spoken, strict=True):
        assert one.prompt_ids is source.prompt_ids
        assert one.completion_ids is source.ids
        assert one.logprobs is source.logprobs
        assert (one.temperature, one.policy_version, one.seat, one.turn) == (0.7, 5, source.seat, source.turn)
    assert [(r.episode, r.advantage) for r in rows] == [(0, 0.5), (0, 0.5), (1, -0.5), (1, -0.5)]


@pytest.mark.parametrize("partner", [BASE, "frozen-12", "remote"])
def test_partners_messages_have_no_rows(partner):
    made = group([message(0), message(1, partner), message(2)], [message(0, partner), message(1)])
    rows = rows_from_group(made, [[1.0, 2.0, 3.0], [4.0, 5.0]])
    assert [(r.episode, r.turn, r.advantage) for r in rows] == [(0, 0, 1.0), (0, 2, 3.0), (1, 1, 5.0)]


def test_what_a_partner_earned_or_wrote_reaches_no_row():
    """Its advantage, text, ids and log-probabilities may be anything at all."""
    before = group([message(0), message(1, BASE)], rewards=(1.0,))
    after = group([message(0), message(1, BASE, ids=(30,), logprobs=(-9.0,), text="y")], rewards=(1.0,))
    assert rows_from_group(before, [[1.0, 2.0]]) == rows_from_group(after, [[1.0, -50.0]])


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"ids": (), "logprobs": ()}, "at least one"),
        ({"prompt_ids": ()}, "at least one"),
        ({"logprobs": (-0.5,)}, "3 ids but 1 log-prob"),
        ({"temperature": 0.0}, "temperature"),
    ],
)
def test_what_cannot_be_trained_is_refused(changes, match):
    with pytest.raises(ValueError, match=match):
        rows_from_group(group([message(0, **changes)], rewards=(1.0,)), [[1.0]])


def test_advantages_of_another_shape_are_refused():
    made = group([message(0), message(1)], rewards=(1.0,))
    with pytest.raises(ValueError, match="zip"):
        rows_from_group(made, [[1.0]])
    with pytest.raises(ValueError, match="zip"):
        rows_from_group(made, [[1.0, 1.0], [1.0]])


def test_micro_batches_by_hand():
    assert micro_batches([3, 9, 3, 4, 20], 9) == [[4], [1], [3, 0], [2]]
    assert micro_batches([], 9) == []


@given(st.lists(st.integers(1, 50), max_size=30), st.integers(1, 200))
def test_micro_batches_hold_every_row_once_within_the_budget(lengths, budget):
    plan = micro_batches(lengths, budget)
    assert sorted(i for batch in plan for i in batch) == list(range(len(lengths)))
    assert all(len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= budget for batch in plan)


def test_collate_by_hand():
    batch = collate([row([1, 2], [3, 4, 5], 2.0, [-1, -2, -3], 0.5), row([6], [7], -1.0, [-4])], [0.1, 0.2], pad_id=9)
    assert batch.ids_BT.tolist() == [[1, 2, 3, 4, 5], [6, 7, 9, 9, 9]]
    assert batch.row_N.tolist() == [0, 0, 0, 1]
    assert batch.source_N.tolist() == [1, 2, 3, 0]
    assert batch.target_N.tolist() == [3, 4, 5, 7]
    assert batch.advantage_N.tolist() == [2, 2, 2, -1]
    assert batch.sampler_logprob_N.tolist() == [-1, -2, -3, -4]
    assert batch.temperature_N.tolist() == [0.5, 0.5, 0.5, 1.0]
    assert batch.weight_N.tolist() == pytest.approx([0.1, 0.1, 0.1, 0.2])


def test_targets_follow_their_sources():
    rows = ragged_rows()
    batch = collate(rows, [1.0] * len(rows))
    assert batch.ids_BT[batch.row_N, batch.source_N + 1].tolist() == batch.target_N.tolist()
    assert batch.ids_BT.shape == (8, max(map(row_length, rows)))
