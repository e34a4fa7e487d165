"""Who lacks what: by brute force over sets."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coterie.swarm.exchange.repair import Inbox, decode, decode_wanted, encode, plan, to_ranges

SEQS = st.sets(st.integers(0, 30), max_size=20)
HOLDINGS = st.dictionaries(st.sampled_from("abc"), SEQS)


@given(SEQS)
def test_ranges_are_those_seqs_and_as_few_as_can_be(seqs):
    ranges = to_ranges(seqs)
    assert [seq for first, last in ranges for seq in range(first, last + 1)] == sorted(seqs)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))


def test_ranges_by_hand():
    assert to_ranges([5, 1, 2, 3, 9, 8]) == [(1, 3), (5, 5), (8, 9)]


@given(st.dictionaries(st.sampled_from(["a", "b", "x", "y"]), HOLDINGS), HOLDINGS, st.integers(-1, 30), st.integers(0, 5))
def test_a_plan_without_a_budget_asks_for_exactly_what_is_missing_of_somebody_who_has_it(offers, here, pruned, turn):
    ranged = {holder: {node: to_ranges(seqs) for node, seqs in offer.items()} for holder, offer in offers.items()}
    held = {node: (pruned, seqs) for node, seqs in here.items()}
    asked = [(holder, *one) for holder, wanted in plan(ranged, held, 10**6, turn).items() for one in wanted]
    offered = {(node, seq) for offer in offers.values() for node, seqs in offer.items() for seq in seqs}
    known = {(node, seq) for node, seqs in here.items() for seq in {*seqs, *range(pruned + 1)}}
    assert sorted((node, seq) for _, node, seq in asked) == sorted(offered - known)
    for holder, node, seq in asked:
        assert seq in offers[holder][node]
        assert holder == node or seq not in offers.get(node, {}).get(node, ())  # the publisher itself where it can


def test_a_budget_goes_to_the_newest_of_each_node_by_turns():
    offers = {"x": {"a": [(0, 9)], "b": [(0, 1)]}}
    wanted = [("a", 9), ("b", 1), ("a", 8), ("b", 0), ("a", 7), ("a", 6)]
    assert plan(offers, {}, 6, 0) == {"x": wanted}


def test_holders_take_turns_so_that_one_who_lies_stops_nobody():
    offers = {"x": {"a": [(4, 4)]}, "y": {"a": [(4, 4)]}}
    assert {holder for turn in range(2) for holder in plan(offers, {}, 9, turn)} == {"x", "y"}


def test_one_who_offers_all_of_anothers_future_does_not_crowd_out_its_present():
    offers = {"liar": {"c": [(0, 2**60)]}, "c": {"c": [(0, 2)]}}
    for turn in range(3):
        assert {("c", 0), ("c", 1), ("c", 2)} <= set(plan(offers, {}, 8, turn)["c"])


def test_ranges_without_end_cost_nothing():
    assert plan({"x": {"a": [(0, 2**62)]}}, {}, 2, 0) == {"x": [("a", 2**62), ("a", 2**62 - 1)]}


def test_recent_is_for_all_and_old_for_those_who_knew_the_node():
    offer = encode(recent={"a": [7, 8]}, own={"a": range(9)})
    assert decode(offer, {}) == {"a": [(7, 8)]}  # a late joiner
    assert decode(offer, {"a": (-1, {3, 7})}) == {"a": [(7, 8), (3, 8)]}
    assert decode(offer, {"a": (5, {6})}) == {"a": [(7, 8), (6, 8)]}
    assert decode(encode({}, {"a": range(3)}), {"a": (5, set())}) == {"a": []}


@pytest.mark.parametrize(
    "text",
    [
        "", "[", "[]", "{}", "[{}]", "[[], []]", '[{"a": 1}, {}]', '[{"a": [[1]]}, {}]', '[{"a": [[2, 1]]}, {}]',
        '[{"a": [["1", 2]]}, {}]', '[{"A/": [[1, 2]]}, {}]', '[{"a": [[-1, 2]]}, {}]', '[{"a": [[0, 9223372036854775808]]}, {}]',
        '[{"a": [[0.5, 1.5]]}, {}]',
    ],
)  # fmt: skip
def test_nonsense_is_a_value_error(text):
    with pytest.raises(ValueError):  # noqa: PT011
        decode(text.encode(), {})


def test_what_is_asked_for_is_checked_and_cut():
    assert decode_wanted(json.dumps([["a", 1], ["b", 2], ["c", 3]]).encode(), 2) == [("a", 1), ("b", 2)]
    for nonsense in ("{}", "[1]", '[["a"]]', '[["../a", 1]]', '[["a", -1]]', '[["a", "1"]]', "not json"):
        with pytest.raises(ValueError):  # noqa: PT011
            decode_wanted(nonsense.encode(), 9)


def test_a_full_inbox_drops_the_oldest_and_counts_it():
    inbox = Inbox(250)
    for seq in range(5):
        inbox.put(("a", seq, 0.0, bytes(100)))
    assert [seq for _, seq, *_ in inbox.take(9)] == [3, 4]
    assert inbox.dropped == 3
    inbox.put(("a", 5, 0.0, bytes(100)))
    inbox.close()
    assert [seq for _, seq, *_ in inbox.take(9)] == [5]  # what is there is still given
    assert inbox.take(9) == []
