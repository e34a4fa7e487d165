"""The pocket tasks dealt to any number of seats; the problems themselves are tested in `tests/pocket/test_tasks.py`."""

import hashlib
import itertools
import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from coterie.tasks.pocket import BLIND_GUESS, deal_among, pocket_tasks, witness
from coterie.tasks.pocket_blind import blind_by_hand, blind_guess
from coterie.tasks.pocket_families import FAMILIES
from coterie.types import CoterieError

THREE = ("A", "B", "C")
BY_HAND = {name: blind_by_hand(FAMILIES[name]) for name in ("boxplus", "boxless")}


def digest(tasks):
    told = [[task.id, {seat: list(facts) for seat, facts in task.private.items()}, task.answer] for task in tasks]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def test_two_seat_tasks_are_what_they_were():
    """Golden: ids, halves and answers as they were when the pocket model was made and the committed records were played. Breaks
    when more seats take other draws from the stream of two."""
    tasks = pocket_tasks("train", 500, 0)
    assert [task.id for task in tasks[:3]] == ["pocket-times-4de391afba", "pocket-chain-4ab637d463", "pocket-timestotal-70caa7d2a7"]
    assert digest(tasks) == "36ca81c941abfe2cf5bed2a894ed86361407683abb012e0e6dffa2c8c4088527"


@pytest.mark.parametrize(("facts", "seats", "ways"), [(3, 3, 6), (4, 3, 36), (4, 4, 24), (4, 2, 14)])
def test_all_ways_to_deal_are_equally_likely(facts, seats, ways):
    """`ways` counts the surjections by the textbook formula. Breaks when facts are dealt in turn, or a seat is filled first."""
    rng = random.Random(0)
    counts = Counter(deal_among(rng, facts, seats) for _ in range(200 * ways))
    assert len(counts) == ways == sum((-1) ** k * _choose(seats, k) * (seats - k) ** facts for k in range(seats))
    assert chisquare(list(counts.values())).pvalue > 1e-3


def _choose(n, k):
    return len(list(itertools.combinations(range(n), k)))


@given(seed=st.integers(0, 10**6), split=st.sampled_from(["train", "held_out"]), seats=st.sampled_from([THREE, tuple("WXYZ")]))
@settings(max_examples=10, deadline=None)
def test_no_seat_of_several_can_know_the_answer(seed, split, seats):
    for task in pocket_tasks(split, 8, seed, seats=seats):
        assert tuple(task.private) == seats
        assert sorted(fact for facts in task.private.values() for fact in facts) == sorted(task.meta["facts"])
        proof = witness(task)
        assert set(proof) == set(seats)
        for seat, (world, other) in proof.items():
            assert set(task.private[seat]) <= set(world.facts) & set(other.facts), "it is told the same in both"
            assert (world.answer, world.facts) == (task.answer, task.meta["facts"])
            assert other.answer != task.answer


def test_families_with_too_few_facts_are_left_out_or_refused():
    tasks = pocket_tasks("train", 100, 0, seats=THREE)
    assert {task.meta["family"] for task in tasks} == {name for name, family in FAMILIES.items() if len(family.facts) >= 3}
    with pytest.raises(CoterieError, match="add2 has fewer facts than the 3 seats A, B, C"):
        pocket_tasks("train", 1, 0, ("add2", "add3"), THREE)


def test_without_seats_nothing_is_dealt_and_the_facts_are_there():
    for task in pocket_tasks("held_out", 30, 0, seats=()):
        assert (dict(task.private), task.meta["hands"]) == ({}, {})
        assert task.question == " ".join((*task.meta["facts"], task.ask))
        assert len(task.meta["facts"]) == len(FAMILIES[task.meta["family"]].facts)
        assert all(len(re.findall(r"\d+", fact)) == 1 for fact in task.meta["facts"])


def test_one_seat_is_told_everything():
    for task in pocket_tasks("train", 10, 0, seats=("A",)):
        assert task.private == {"A": task.meta["facts"]}


def test_a_blind_guess_from_one_of_three_hands():
    """By hand for boxplus, v0 * v1 + v2, whose three-seat hands hold one fact each: the best answer to each number, counted with
    no help from the package's enumeration of families."""
    rows = [
        (a, b, c)
        for a, b, c in itertools.product(range(2, 13), range(2, 13), range(2, 41))
        if len({a, b, c}) == 3 and a * b <= 150 and a * b + c <= 150
    ]
    best = []
    for place in range(3):
        answers = Counter((row[place], row[0] * row[1] + row[2]) for row in rows)
        most = {known: max(n for (k, _), n in answers.items() if k == known) for known, _ in answers}
        best.append(sum(most.values()) / len(rows))
    assert blind_guess(FAMILIES["boxplus"], seats=3) == pytest.approx(sum(best) / 3)


@pytest.mark.parametrize("name", BY_HAND)
def test_knowing_less_never_helps(name):
    """The reason why `BLIND_GUESS`, made for halves, bounds three seats too: every hand of three lies inside a hand of two."""
    shares = BY_HAND[name]
    for small, large in itertools.product(shares, repeat=2):
        if set(small) < set(large):
            assert shares[small] <= shares[large]
    assert blind_guess(FAMILIES[name], seats=3) < blind_guess(FAMILIES[name]) == pytest.approx(BLIND_GUESS[name], abs=6e-4)
