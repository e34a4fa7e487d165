"""How much is taken from others, what is shared and what is drawn, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from coterie.config.swarm import ExternalConfig, SwarmConfig
from coterie.seeding import stream
from coterie.swarm.sharing import Falling, Fixed, Linear, Past, Useful, choose, draw, is_useful, policy_of


def past(external: int = 4, reward: float | None = None, admitted: int = 0, useful: int = 0) -> Past:
    return Past(external, reward, admitted, useful)


def test_fixed_and_linear():
    assert [Fixed(4).external(r, ()) for r in (0, 99)] == [4, 4]
    # 6 - 4 r / 4 for r = 0 .. 4, then 2; upwards in thirds: 0, 1/3, 2/3, 1
    assert [Linear(6, 2, 4).external(r, ()) for r in range(7)] == [6, 5, 4, 3, 2, 2, 2]
    assert [Linear(0, 1, 3).external(r, ()) for r in range(5)] == [0, 0, 1, 1, 1]
    assert (Linear(6, 2, 4).most, Linear(1, 3, 4).most) == (6, 3)


def test_the_share_of_useful_groups_counts_over_the_window_only():
    policy = Useful(least=1, most=5, window=3)
    assert policy.external(0, ()) == 1, "nothing came in, so there is nothing to be drawn"
    assert policy.external(1, [past(admitted=4, useful=4)]) == 5
    # 8 old ones, all useful, are out of the window; 3 of 8 in it: 1 + 4 * 3 / 8 = 2.5, rounded up
    assert policy.external(4, [past(admitted=8, useful=8), past(admitted=4, useful=1), past(), past(admitted=4, useful=2)]) == 3


def rounds(*windows: tuple[int, float]) -> list[Past]:
    """Windows of two rounds, each with its J and its mean reward."""
    return [past(j, reward + change) for j, reward in windows for change in (-0.25, 0.25)]


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], 4),
        (rounds((4, 0.5)), 4),
        (rounds((4, 0.5), (4, 0.375)), 3),
        (rounds((3, 0.5), (3, 0.625)), 4),
        (rounds((4, 0.5), (4, 0.625)), 4),
        (rounds((1, 0.5), (1, 0.25)), 1),
        (rounds((3, 0.5), (3, 0.4375)), 3),
        (rounds((4, 0.75), (3, 0.5))[:-1], 3),
        (rounds((4, 0.75), (3, 0.5)), 2),
        (rounds((4, 0.75), (3, 0.75)), 3),
    ],
    ids=[
        "begins with the most",
        "waits for two windows",
        "falls",
        "rises",
        "not above the most",
        "not below the least",
        "within the tolerance",
        "J has not stood for a window",
        "falls again",
        "stays",
    ],
)
def test_falling_own_reward_takes_one_group_away(seen, expected):
    assert Falling(least=1, most=4, window=2, tolerance=0.0625).external(len(seen), seen) == expected


def test_rounds_without_a_reward_do_not_decide():
    seen = [past(4, None)] * 2 + [past(4, 0.0)] * 2
    assert Falling(1, 4, 2, 0.0).external(4, seen) == 4


def test_settings_name_the_policies():
    of = TypeAdapter(ExternalConfig).validate_python
    assert policy_of(of({"kind": "fixed", "groups": 2})) == Fixed(2)
    assert policy_of(of({"kind": "linear", "first": 1, "last": 4, "rounds": 9})) == Linear(1, 4, 9)
    assert policy_of(of({"kind": "useful", "least": 1, "most": 3, "window": 7})) == Useful(1, 3, 7)
    assert policy_of(of({"kind": "falling", "most": 3, "tolerance": 0.5})) == Falling(0, 3, 20, 0.5)
    with pytest.raises(ValidationError, match="least = 4 is larger than most = 3"):
        of({"kind": "useful", "least": 4, "most": 3})


def test_a_sequence_weight_is_refused_with_the_reason():
    with pytest.raises(ValidationError, match=r"whose log-probabilities are not sent.*clipped"):
        SwarmConfig.model_validate({"correction": "sequence"})


def test_useful_is_exact():
    assert not is_useful((0.1 + 0.2, 0.1 + 0.2, None))
    assert is_useful((0.1 + 0.2, 0.3))


GROUPS = [(1.0, 1.0), (0.0, 1.0), (1.0,), (None, 0.0, 0.5)]


def test_what_is_shared():
    rng = stream(0, "test")
    assert choose(GROUPS, "all", None, rng) == [0, 1, 3]
    assert choose(GROUPS, "useful", None, rng) == [1, 3]
    assert choose(GROUPS, "none", None, rng) == []
    drawn = {tuple(choose(GROUPS, "all", 2, stream(seed, "test"))) for seed in range(40)}
    assert drawn == {(0, 1), (0, 3), (1, 3)}


@given(st.integers(0, 12), st.integers(0, 8), st.integers(0, 99))
def test_a_draw_is_without_replacement_and_never_short_for_no_reason(count, size, seed):
    drawn = draw(count, size, None, stream(seed, "test"))
    assert len(drawn) == len(set(drawn)) == min(count, size)
    assert all(0 <= i < size for i in drawn)


def test_weighted_draws_follow_the_shares():
    """400 draws of one: the count of the likelier group is within 4 standard deviations of 300, and a share of 0 is never drawn."""
    drawn = [draw(1, 3, [0.25, 0.0, 0.75], stream(seed, "test"))[0] for seed in range(400)]
    assert 1 not in drawn
    assert abs(drawn.count(2) - 300) < 4 * math.sqrt(400 * 0.25 * 0.75)
    assert sorted(draw(3, 3, [0.25, 0.0, 0.75], stream(0, "test"))) == [0, 2]
