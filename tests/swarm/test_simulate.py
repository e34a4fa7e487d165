"""The simulated swarm against what can be worked out on paper, and its page against its record."""

import importlib.util
import json
import math
import statistics
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import lambertw

from coterie.swarm.gate.quota import Bucket
from coterie.swarm.gate.reputation import capped
from coterie.swarm.simulate import (
    BadNodes,
    Costs,
    Sharing,
    Spread,
    effective_nodes,
    half_time,
    load,
    play,
    shard_count,
    useful_share,
)
from coterie.swarm.simulate.bad import Kind, through

KINDS: tuple[Kind, ...] = ("false", "useless")
ROOT = Path(__file__).parents[2]


def bench():
    spec = importlib.util.spec_from_file_location("swarm_scale", ROOT / "bench" / "swarm_scale.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("nodes", "hubs"), [(10, 2), (60, 3), (400, 4)])
def test_flooding_is_the_closed_form(nodes, hubs):
    """(n - 1) g groups come in; a hub with c clients gives its c + 1 nodes' groups to each other hub and all but their own to its
    clients. Breaks when a wire is counted twice, or a sender gets its own back."""
    size, groups = 20_000, 8
    one = load(nodes, hubs, Sharing(), groups=groups, rounds=2)
    assert one.client_in == one.client_in_most == one.hub_in == (nodes - 1) * groups * size
    assert one.client_out == one.client_out_most == groups * size
    clients = len(range(hubs, nodes, hubs))  # of hub 0, which has the most
    assert one.hub_out == ((clients + 1) * (hubs - 1) + clients * (nodes - 1)) * groups * size
    costs = Costs()
    assert one.cpu == pytest.approx(groups * costs.sign + (nodes - 1) * groups * (costs.verify + costs.gate))


def test_announcing_is_the_closed_form_with_one_shard_read_by_all():
    """Announcements of all others, four bodies, and the requests that come in for own ones."""
    nodes, groups, draws = 200, 8, 4
    one = load(nodes, 2, Sharing(1), groups=groups, draws=draws, rounds=4)
    assert one.drawn == draws
    served = (one.client_out - groups * 400 - draws * 200) / 20_000
    assert one.client_in == pytest.approx((nodes - 1) * groups * 400 + draws * 20_000 + served * 200)
    assert served == pytest.approx(draws, rel=0.1)  # pulled as often as pulling, up to chance and the two hubs


def test_what_a_node_reads_does_not_grow_with_the_swarm():
    """On average 2/S of all others' announcements, within the scatter of shards of unequal size (sd 4 of 16)."""
    for nodes in (200, 1000, 3000):
        shards = shard_count(nodes)
        one = load(nodes, 4, Sharing(shards))
        expected = 2 / shards * (nodes - 1) * 8 * 400 + 4 * 20_000 + 4 * 200
        assert one.client_in == pytest.approx(expected, rel=0.1)


def chain(nodes: int, groups: int, takes: float, draws: int) -> tuple[float, float]:
    """Mean and variance of the rounds to half of a chain-binomial epidemic in step, by its transition probabilities.

    With K that know, each shows one of its `groups`; the draw without replacement is `draws` of the (n - 1) groups.
    """
    half, hits = math.ceil(nodes / 2), np.arange(draws + 1)
    moves = np.zeros((nodes + 1, nodes + 1))
    for known in range(1, half):
        missed = float((stats.hypergeom.pmf(hits, (nodes - 1) * groups, known, draws) * (1 - takes) ** hits).sum())
        moves[known, known:] = stats.binom.pmf(np.arange(nodes - known + 1), nodes - known, 1 - missed)
    state, rounds, mean, square = np.eye(nodes + 1)[1], 0, 0.0, 0.0
    while state.sum() > 1e-9:
        state = state @ moves
        done = state[half:].sum()
        mean, square = mean + rounds * done, square + rounds**2 * done
        state[half:] = 0
        rounds += 1
    return mean, square - mean**2


@pytest.mark.parametrize(
    ("nodes", "groups", "takes", "draws"), [(40, 4, 1.0, 4), (60, 4, 0.25, 4), (60, 4, 1.0, 1), (7, 1, 1.0, 1), (7, 1, 0.5, 5)]
)
def test_half_time_at_equal_paces_is_that_of_the_chain_binomial(nodes, groups, takes, draws):
    """Breaks when a node passes on in the round in which it learned, or draws its own groups. Within four standard errors; in
    the last two cases own groups, and drawing with replacement, would show."""
    seeds = 80 if nodes > 10 else 1000
    times = [
        half_time(Spread(nodes, groups=groups, takes=takes, draws=draws, wait=1, staggered=False), seed) for seed in range(seeds)
    ]
    rounds = [(time - 1) / 300 for time in times]
    mean, variance = chain(nodes, groups, takes, draws)
    assert statistics.mean(rounds) == pytest.approx(mean, abs=4 * math.sqrt(variance / seeds))
    assert statistics.variance(rounds) == pytest.approx(variance, rel=0.5)


def test_growth_of_a_mixed_swarm_out_of_step_is_the_root_of_the_delayed_equation():
    """Equal paces, starts spread over a round: K'(t) = b K(t - 1) with b = J shows takes / groups and a round of delay between
    learning and showing, so K grows as exp(W(b) t) (Lambert's W). From 100 to 1,600 nodes the half time grows by ln 16 / W(b).
    Without the delay it would be ln 16 / b = 0.69 rounds, not 2.31."""
    seeds, expected = 24, math.log(16) / lambertw(4).real
    few, many = ([half_time(Spread(nodes, takes=1.0, draws=16), seed) / 300 for seed in range(seeds)] for nodes in (100, 1600))
    error = math.sqrt((statistics.variance(few) + statistics.variance(many)) / seeds)
    assert statistics.mean(many) - statistics.mean(few) == pytest.approx(expected, abs=4 * error)
    assert error < 0.3


def test_one_shard_is_flooding_and_unread_discoverers_wait():
    one, other = Spread(50, Sharing(1)), Spread(50, Sharing())
    assert [half_time(one, seed) for seed in range(3)] == [half_time(other, seed) for seed in range(3)]


def test_favourites_of_everybody_are_a_mixed_swarm():
    """With all others as favourites and one draw, loyal draws are uniform over nodes, as the others are."""
    mixed = [half_time(Spread(60, draws=1, takes=1.0), seed) for seed in range(60)]
    loyal = [half_time(Spread(60, draws=1, takes=1.0, favourites=59), seed) for seed in range(60)]
    error = math.sqrt((statistics.variance(mixed) + statistics.variance(loyal)) / 60)
    assert statistics.mean(mixed) == pytest.approx(statistics.mean(loyal), abs=4 * error)


def share(setting: BadNodes, rounds: slice) -> tuple[float, float]:
    """Mean over seeds and its standard error."""
    shares = [useful_share(play(setting, seed)[rounds]) for seed in range(8)]
    return statistics.mean(shares), statistics.stdev(shares) / math.sqrt(len(shares))


@pytest.mark.parametrize("bad", [0.1, 0.3])
def test_without_a_gate_the_draw_is_the_mixture(bad):
    """(1 - b) g u of (1 - b) g + b g r groups when flooding; when announcing, honest nodes' dull groups are left out."""
    for sharing, honest in ((Sharing(), 8), (Sharing(1), 4)):
        mean, error = share(BadNodes(201, bad, "useless", "nothing", sharing), slice(None))
        assert mean == pytest.approx((1 - bad) * 4 / ((1 - bad) * honest + bad * 8 * 4), abs=4 * error)


@pytest.mark.parametrize("bad", [0.1, 0.3])
def test_with_the_gate_a_flooded_draw_follows_the_steady_weights(bad):
    """After many rounds: a node's acts, decayed, are those of a round over 1 - 2^(-1/72); weights as in `reputation.py`."""
    acts = 8 / (1 - 0.5 ** (300 / (6 * 3600)))
    honest = (10 * 0.1 + acts * (0.5 + 0.25 * 0.5)) / (10 + acts)
    useless = (10 * 0.1 + 4 * acts * 0.25) / (10 + 4 * acts)
    expected = (1 - bad) * honest * 0.5 / ((1 - bad) * honest + bad * useless)
    setting = BadNodes(31, bad, "useless", "gate", rounds=300)
    mean, error = share(setting, slice(200, None))
    assert mean == pytest.approx(expected, abs=4 * error)


def test_fresh_keys_are_a_tenth_at_most_once_a_node_is_known():
    """And false groups are never among what flooding leaves to draw: all that is drawn is honest, half of it useful."""
    fresh, error = share(BadNodes(33, 0.3, "fresh", "gate", Sharing(1)), slice(48, None))
    assert 0.9 - 4 * error <= fresh < 1
    false, error = share(BadNodes(33, 0.3, "false", "gate"), slice(None))
    assert false == pytest.approx(0.5, abs=4 * error)
    setting = BadNodes(33, 0.3, "false", "gate", draws=200, rounds=3)  # more than there is
    assert {node for draws in play(setting, 0) for node, _ in draws} == set(range(22))  # 32 others, 10 of them bad


def test_announced_and_false_costs_more_reputation_than_announced_and_useless():
    """A fault is worth 0 and a dull group 0.25, which shows where the known ones are not nearly all of a draw anyhow."""
    (false, error), (useless, other) = (
        share(BadNodes(33, 0.3, kind, "gate", Sharing(1), most=1 / 16, rounds=240), slice(96, None)) for kind in KINDS
    )
    assert false - useless > 2 * math.hypot(error, other)


def test_a_node_that_draws_all_draws_each_group_once():
    """Eight a round from the one other node, half of them useful. Drawn with replacement they would be of any mixture."""
    rounds = play(BadNodes(2, 0.0, "useless", "nothing", draws=99, rounds=400), 0)
    assert {len(draws) for draws in rounds} == {8}
    assert useful_share(rounds) == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(3200))


@given(st.integers(0, 600), st.floats(1, 200), st.floats(0, 256), st.floats(0.1, 8))
def test_what_passes_a_quota_in_a_round_is_what_passes_the_bucket(sent, seconds, tokens, rate):
    """Two rounds, envelope by envelope, through the gate's own bucket, of a burst that does not overflow between two of them."""
    bucket = Bucket(rate, 256 + 2 * rate * seconds, 0.0)
    bucket.take(bucket.burst - tokens, 0.0)
    passed = 0
    for i in range(2 * sent):
        now = (i + 1) * seconds / sent
        if bucket.has(1, now):
            bucket.take(1, now)
            passed += 1
    first, left = through(sent, seconds, tokens, rate, bucket.burst)
    second, _ = through(sent, seconds, left, rate, bucket.burst)
    assert abs(first + second - passed) <= 1


def test_quota_by_hand():
    """Eight a second for 300 s and a burst of 256 that is full: 2,656 pass, and 2,400 in the next round. Unused, it fills up."""
    first, left = through(8000, 300, 256, 8, 256)
    assert (first, left) == (2656, 0)
    assert through(8000, 300, left, 8, 256) == (2400, 0)
    assert through(8, 300, 0, 8, 256) == (8, 256)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=12), st.floats(0.05, 1))
def test_capped_shares_sum_to_one_below_the_cap_and_keep_their_order(weights, most):
    parts = [weight / sum(weights) for weight in weights]
    made = capped(parts, most)
    assert sum(made) == pytest.approx(1)
    assert max(made) <= max(most, 1 / len(parts)) * (1 + 1e-6)
    assert all(a <= b + 1e-9 for (p, a) in zip(parts, made, strict=True) for (q, b) in zip(parts, made, strict=True) if p <= q)


def test_capped_by_hand():
    assert capped([0.7, 0.2, 0.1], 0.5) == pytest.approx([0.5, 1 / 3, 1 / 6])
    assert capped([0.7, 0.2, 0.1], 0.2) == pytest.approx([1 / 3] * 3)


def test_effective_nodes_by_hand():
    """Two draws of each of two nodes: of the six pairs two are of one node. Bad draws do not count."""
    assert effective_nodes([[(0, True), (1, True), (9, False)], [(0, True), (1, True)]]) == 3
    assert effective_nodes([[(0, True)]]) == math.inf


def test_a_seed_repeats():
    setting = BadNodes(100, 0.3, "false", "gate", Sharing(6))
    assert play(setting, 1) == play(setting, 1) != play(setting, 2)
    assert half_time(Spread(100, sigma=0.5), 1) == half_time(Spread(100, sigma=0.5), 1) != half_time(Spread(100, sigma=0.5), 2)


def test_the_page_is_made_from_the_record_and_the_record_by_this_program():
    """Breaks when a figure of a table is typed, or the simulation changes and nobody runs `python bench/swarm_scale.py`."""
    made = bench()
    record = json.loads(made.RECORD.read_text(encoding="utf-8"))
    page = made.PAGE.read_text(encoding="utf-8")
    assert sorted(record) == sorted(made.PARTS) == sorted(made.TABLES)
    assert made.fill(page, record) == page
    assert all(f"<!-- table: {name} -->" in page for name in record)
    assert made.traffic((10, 100)) == [row for row in record["traffic"] if row["nodes"] <= 100]
    assert made.spread((10,)) == [row for row in record["spread"] if row["nodes"] == 10]
    setting = BadNodes(1000, 0.3, "useless", "gate", made.announcing(1000))
    there = next(r for r in record["bad"] if (r["way"], r["nodes"], r["share"], r["kind"]) == ("announcing", 1000, 0.3, "useless"))
    assert made.drawn(setting) == there["gate"] == next(row for row in record["draws"] if row["draws"] == 4)["gate"]
    assert asdict(Costs()) == {"sign": 76e-6, "verify": 109e-6, "gate": 1e-3}  # the page's list says so


def test_an_edited_record_changes_the_page():
    made = bench()
    record = json.loads(made.RECORD.read_text(encoding="utf-8"))
    page = made.PAGE.read_text(encoding="utf-8")
    record["traffic"][0]["client_in"] = 123e9
    assert "123 GB" in made.fill(page, record)
