"""Who plays where: shares, seats, and members drawn by result."""

import json
import re
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coterie.casts.base import player_name
from coterie.casts.mixed_partners import MixedPartners
from coterie.casts.pool import LEAST, WINDOW, Pool
from coterie.types import BASE, POLICY, CoterieError, Episode

SEATS = ("A", "B")


def guests(cast, count, seats=SEATS, task=0):
    """Which seats are not the policy's in the first `count` episodes of a task."""
    of = [cast.players(seats, index, ("train", 0, task)) for index in range(count)]
    return ["".join(seat for seat in seats if by_seat[seat] != POLICY) for by_seat in of]


def pool(**options):
    standard = {
        "share": 1.0, "takes": ("B",), "members": (), "snapshot_every": None, "largest": 8, "by_result": False, "seed": 0
    }  # fmt: skip
    return Pool(**{**standard, **options})


def episode(reward, **cast):
    return Episode("t", 0, {"A": POLICY, **cast}, (), {}, reward)


def test_half_of_four_episodes_have_a_stranger_and_so_does_half_of_each_round():
    """As many as published (2 of 4), but not the last two."""
    assert guests(MixedPartners(0.5, ("B",), False, "base"), 8) == ["", "B"] * 4


def test_alternating_gives_the_seats_in_turn_and_otherwise_all_at_once():
    """By task: all strangers of one task sit in one seat, or each cast would have one episode and nothing to compare it with."""
    alternating = MixedPartners(0.5, ("A", "B"), True, "base")
    assert [guests(alternating, 4, task=task) for task in range(3)] == [["", "A"] * 2, ["", "B"] * 2, ["", "A"] * 2]
    assert guests(MixedPartners(1.0, ("B", "C"), False, "base"), 2, ("A", "B", "C")) == ["BC", "BC"]
    cast = MixedPartners(1.0, ("B",), False, "runs/x/chat-seed18")
    assert (cast.players(SEATS, 0), cast.partners) == ({"A": POLICY, "B": "chat-seed18"}, ("runs/x/chat-seed18",))


@given(st.integers(0, 200), st.integers(0, 100))
@example(100, 29)
def test_of_the_first_n_episodes_the_share_have_a_stranger_whatever_n(n, percent):
    """Exact in fractions: 29 of 100 at 0.29, although 100 * 0.29 is less than 29 in floating point."""
    for cast in (MixedPartners(percent / 100, ("B",), False, "base"), pool(share=percent / 100, members=("base",))):
        assert n - guests(cast, n).count("") == Fraction(percent, 100) * n // 1


@pytest.mark.parametrize(
    ("cast", "said"),
    [
        (MixedPartners(0.5, ("C",), False, "base"), "cast.seats: there is no seat C; this protocol has A, B"),
        (MixedPartners(0.5, ("A", "B"), False, "base"), "leave nothing to train"),
        (pool(takes=("reader 0",), members=("base",)), "no seat reader 0"),
    ],
)
def test_seats_that_do_not_exist_or_leave_none_are_refused(cast, said):
    with pytest.raises(CoterieError, match=said):
        cast.players(SEATS, 0)


@pytest.mark.parametrize(
    ("partner", "name"),
    [
        ("base", BASE),
        ("runs/talk/chat-seed18", "chat-seed18"),
        ("/x/chat-seed18/checkpoints/step-000080/adapter", "chat-seed18"),
        ("./mine v2.1/", "mine-v2-1"),
        ("policy", "player-policy"),
        ("train", "player-train"),
        ("default", "player-default"),
        ("checkpoints/step-000012", "player-"),
        ("http://127.0.0.1:8000/v1#org/Some-Model.5", "Some-Model-5-at-127-0-0-1-8000"),
        ("https://api.example.org/v1#m", "m-at-api-example-org"),
    ],
)
def test_names_of_players(partner, name):
    assert player_name(partner) == name


@given(st.text(max_size=40))
def test_a_name_is_safe_in_files_and_as_an_adapter_and_never_the_policys(text):
    """A module of torch refuses names with a dot, and names of its own attributes; "default" is the policy's adapter."""
    name = player_name(text) if not text.startswith("http") else "x-1"
    assert re.fullmatch(r"[A-Za-z0-9_-]+", name)
    assert text == "base" or name not in {POLICY, BASE, "default", "keys", "train"}
    assert not re.fullmatch(r"step-\d+", name)


def test_an_address_must_name_its_model():
    with pytest.raises(CoterieError, match=r"#, as in http://host:port/v1#model"):
        player_name("http://127.0.0.1:8000/v1")


def test_a_pool_without_members_is_self_play_until_the_first_snapshot():
    cast = pool(snapshot_every=2, takes=SEATS)
    assert guests(cast, 4) == [""] * 4
    cast.observe([])
    assert cast.snapshots == ()
    cast.observe([])
    assert cast.snapshots == ("step-2",)
    assert [guests(cast, 4, task=task) for task in range(2)] == [["A"] * 4, ["B"] * 4]


def test_the_oldest_snapshot_leaves_and_partners_stay():
    cast = pool(snapshot_every=1, largest=2, members=("base",))
    for _ in range(4):
        cast.observe([])
    assert cast.snapshots == ("step-3", "step-4")
    drawn = {cast.players(SEATS, 0, ("train", 9, task))["B"] for task in range(60)}
    assert drawn == {BASE, "step-3", "step-4"}


def test_members_are_drawn_by_task_and_seed_and_nothing_else():
    def drawn(seed, step):
        cast = pool(members=("base", "x-1", "x-2"), seed=seed)
        of_task = [{cast.players(SEATS, index, ("train", step, task))["B"] for index in range(4)} for task in range(40)]
        assert all(len(members) == 1 for members in of_task)  # one member for all episodes of a task
        return [member for members in of_task for member in members]

    assert drawn(0, 1) == drawn(0, 1)
    assert len({tuple(drawn(seed, step)) for seed in (0, 1) for step in (1, 2)}) == 4
    counts = Counter(member for step in range(100) for member in drawn(0, step))  # 4000 draws: 3.5 standard deviations are 104
    assert all(abs(count - 4000 / 3) < 104 for count in counts.values())


def test_by_result_the_worse_the_team_does_the_more_often_and_none_vanishes():
    cast = pool(members=("x-1", "x-2", "x-3", "x-4"), by_result=True)
    for _ in range(WINDOW):
        cast.observe([episode(1.0, B="x-1"), episode(0.75, B="x-2"), episode(0.0, B="x-3"), episode(None, B="x-4")])
    assert [cast.weight(f"x-{k}") for k in (1, 2, 3, 4)] == [LEAST, 0.25, 1.0, 1.0]  # x-4 was never graded: as one that fails
    counts = Counter(cast.players(SEATS, 0, ("train", 0, task))["B"] for task in range(4000))
    expected = {"x-1": 0.1 / 2.35, "x-2": 0.25 / 2.35, "x-3": 1 / 2.35, "x-4": 1 / 2.35}
    assert all(counts[member] / 4000 == pytest.approx(share, abs=0.03) for member, share in expected.items())
    for _ in range(WINDOW):
        cast.observe([episode(0.0, B="x-1")])
    assert cast.weight("x-1") == 1.0  # what was longer ago than the window is forgotten


def test_uniform_ignores_results():
    cast = pool(members=("x-1", "x-2"))
    cast.observe([episode(1.0, B="x-1"), episode(0.0, B="x-2")])
    assert cast.weight("x-1") == cast.weight("x-2")


def test_a_restored_pool_goes_on_as_the_old_one_would_have():
    one, other = (pool(members=("base",), snapshot_every=1, largest=3, by_result=True) for _ in range(2))
    for step in range(5):
        one.observe([episode(step / 5, B="base"), episode(0.5, B=f"step-{step}")])
    other.restore(json.loads(json.dumps(one.state())))
    for cast in (one, other):
        cast.observe([episode(1.0, B="base")])
    assert one.state() == other.state()
    assert [one.players(SEATS, i, ("x",)) for i in range(50)] == [other.players(SEATS, i, ("x",)) for i in range(50)]
