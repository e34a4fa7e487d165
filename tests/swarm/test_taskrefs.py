import importlib.metadata
import importlib.util
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coterie.swarm.taskrefs import RELEASED, accepted, reference, regenerate, task_or_reason
from coterie.swarm.words import TaskRef
from coterie.tasks import pocket_specialties as pocket
from coterie.tasks import reasoning_gym as gym
from coterie.tasks.overlap import check_overlap, normalise
from coterie.tasks.pocket import pocket_tasks, split_of, witness
from coterie.tasks.pocket_families import FAMILIES, answer_of
from coterie.types import CoterieError

needs_gym = pytest.mark.skipif(importlib.util.find_spec("reasoning_gym") is None, reason="needs the extra gym")

GOLDEN = TaskRef("pocket/add3", "1", '{"seats":[]}', 7, 11)


def pocket_ref(family="add2", seed=0, index=0, seats=()):
    return TaskRef(f"pocket/{family}", pocket.VERSION, pocket.canonical(seats), seed, index)


def test_a_reference_names_the_same_problem_for_ever():
    """Two members with different coterie versions must make one problem of a reference, or raise VERSION."""
    task = regenerate(GOLDEN)
    assert (task.question, task.answer) == GOLDEN_TASK
    assert reference(task) == GOLDEN


GOLDEN_TASK = (
    "Ben owns 37 stones. Ray has 9 stones. Uma owns 29 stones. How many stones do Ben, Ray and Uma have together?",
    "75",
)


@needs_gym
def test_a_gym_reference_names_the_same_problem_for_ever():
    if gym.version() != "0.1.25":
        pytest.skip("the text below is of reasoning-gym 0.1.25")
    ref = TaskRef("reasoning_gym/fraction_simplification", "0.1.25", gym.canonical(gym.RELEASED["fraction_simplification"]), 0, 0)
    task = regenerate(ref)
    asked = "Simplify the fraction 1375/2695 to its lowest terms. Give only the simplified fraction as your final answer."
    assert (task.question, task.answer) == (asked, "25/49")


@given(family=st.sampled_from(list(FAMILIES)), seed=st.integers(0, 2**62), index=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_pocket_there_and_back(family, seed, index):
    """Also: the problem does not depend on who is told what, is one of its family, and is nobody's held-out problem."""
    alone, dealt = (regenerate(pocket_ref(family, seed, index, seats)) for seats in ((), ("A", "B")))
    assert reference(alone) == pocket_ref(family, seed, index)
    assert (alone.question, alone.answer) == (dealt.question, dealt.answer)
    assert alone.private == {}
    assert sorted(fact for facts in dealt.private.values() for fact in facts) == sorted(alone.meta["facts"])
    assert set(witness(dealt)) == {"A", "B"}
    assert alone.answer == str(answer_of(FAMILIES[family], alone.meta["numbers"]))
    assert split_of(family, alone.meta["numbers"]) == "train"
    assert family in pocket.SPECIALTIES[alone.meta["specialty"]]


def test_pocket_problems_do_not_depend_on_each_other_and_differ():
    questions = [regenerate(pocket_ref("trip", seed, index)).question for seed in range(5) for index in range(20)]
    assert len(set(questions)) == 100
    assert regenerate(pocket_ref("trip", 3, 17)).question == questions[3 * 20 + 17]


def test_specialties_take_turns_and_every_family_is_in_one():
    assert sorted(pocket.OF_FAMILY) == sorted({**FAMILIES, **pocket.UNSEEN})
    assert sum(map(len, pocket.SPECIALTIES.values())) == len(FAMILIES) + len(pocket.UNSEEN)
    assert set(pocket.UNTRAINED) == set(pocket.SPECIALTIES)
    tasks = pocket.specialty_tasks(120, 24, 5)
    assert [task.meta["specialty"] for task in tasks.train[:9]] == [*pocket.PRETRAINED, "sums"]
    assert [task.meta["specialty"] for task in tasks.held_out[:9]] == [*pocket.PRETRAINED, "sums"]
    assert [task.meta["family"] for task in tasks.train[::8][:3]] == ["add2", "more", "add2"]
    assert pocket.specialty_tasks(50, 8, 5).train == tasks.train[:50]
    assert len({normalise(task.question) for task in tasks.train}) == 120
    check_overlap(tasks)
    assert [regenerate(reference(task)) for task in tasks.train] == list(tasks.train)
    with pytest.raises(CoterieError, match=r"tasks.specialties: name some of sums, .* not jumps"):
        pocket.specialty_tasks(1, 1, specialties=("jumps",))
    with pytest.raises(CoterieError, match=r"add2 has fewer facts than the 3 seats A, B, C"):
        pocket.specialty_tasks(1, 0, specialties=("sums",), seats=("A", "B", "C"))


SOLVED = {
    "bigadd": lambda a, b: a + b,
    "mult": lambda a, b: a * b,
    "multgive": lambda a, b, c: a * b - c,
    "biggive": lambda a, b: a - b,
    "multmore": lambda a, b, c: a * b + c,
    "multfewer": lambda a, b, c: a * b - c,
    "fewergive": lambda a, b, c: a - b - c,
    "add4": lambda a, b, c, d: a + b + c + d,
}


def test_families_new_to_the_pocket_model():
    """Answers by formula from the numbers in the text, and words that its tokenizer knows (it has no token for an unknown word)."""
    words = {word for task in pocket_tasks("train", 3000, 0) for word in re.findall(r"[A-Za-z]+", task.question)}
    tasks = pocket.specialty_tasks(400, 80, 1, pocket.NEW)
    for task in (*tasks.train, *tasks.held_out):
        assert str(SOLVED[task.meta["family"]](*map(int, re.findall(r"\d+", task.question)))) == task.answer
        assert set(re.findall(r"[A-Za-z]+", task.question)) <= words
        assert split_of(task.meta["family"], task.meta["numbers"]) == task.meta["split"]
    assert {task.meta["family"] for task in tasks.held_out} == set(SOLVED)
    assert not set(pocket.UNSEEN) & set(FAMILIES)
    check_overlap(tasks)
    with pytest.raises(CoterieError, match="bigadd is for one copy"):
        pocket.specialty_tasks(1, 0, specialties=("bigsums",), seats=("A", "B"))
    assert "is for one copy" in task_or_reason(pocket_ref("bigadd", seats=("A", "B")))


def test_no_other_seed_holds_out_what_is_trained_on():
    trained = {(t.meta["family"], t.meta["numbers"]) for seed in range(3) for t in pocket.specialty_tasks(200, 0, seed).train}
    held = {(t.meta["family"], t.meta["numbers"]) for seed in range(3) for t in pocket.specialty_tasks(0, 200, seed).held_out}
    assert not trained & held


@needs_gym
@given(name=st.sampled_from(list(gym.RELEASED)), seed=st.integers(0, 2**62), index=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_gym_there_and_back(name, seed, index):
    ref = TaskRef(f"reasoning_gym/{name}", gym.version(), gym.canonical(gym.RELEASED[name]), seed, index)
    task = task_or_reason(ref)
    if isinstance(task, str):
        assert task == "its question is held out" or "cannot make item" in task or "is worth" in task
    else:
        assert reference(task) == ref
        assert gym.split_of(task.question) == "train"


@needs_gym
def test_a_held_out_question_is_refused():
    tasks = gym.load_reasoning_gym(("base_conversion",), {}, 5, 5)
    assert {task_or_reason(reference(task)) for task in tasks.held_out} == {"its question is held out"}
    assert [regenerate(reference(task)) for task in tasks.train] == list(tasks.train)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": "chess"}, "the source is not accepted here"),
        ({"source": "pocket/none"}, "the source is not accepted here"),
        ({"source": "pocket"}, "the source is not accepted here"),
        ({"config": '{"seats":["A","B","C"]}'}, "the settings of pocket/add3 are not those accepted here"),
        ({"config": '{"seats": []}'}, "the settings of pocket/add3 are not those accepted here"),
        ({"version": "0"}, "it is of pocket 0, here is 1"),
        ({"seed": -1}, "the seed or index is out of range"),
        ({"seed": 10**400}, "the seed or index is out of range"),
        ({"seed": True}, "the seed or index is out of range"),
        ({"index": 2**32}, "the seed or index is out of range"),
        ({"index": 1.0}, "the seed or index is out of range"),
    ],
)
def test_what_cannot_be_made_has_a_reason(change, reason):
    ref = replace(GOLDEN, **change)
    assert regenerate(ref) is None
    assert task_or_reason(ref) == reason


def test_settings_of_a_stranger_are_not_tried_out():
    """Settings can ask for a problem of any size. Breaks when a source is accepted with whatever settings come."""
    ref = TaskRef("reasoning_gym/basic_arithmetic", "0.1.25", gym.canonical({"min_terms": 10**9, "max_terms": 10**9}), 0, 0)
    assert "are not those accepted" in task_or_reason(ref)
    assert task_or_reason(ref, [("reasoning_gym/n_queens", "{}")]) == "the source is not accepted here"


@needs_gym
def test_a_node_accepts_its_own_settings():
    tasks = gym.load_reasoning_gym(("gcd",), {"gcd": {"max_value": 99}}, 3, 0)
    ref = reference(tasks.train[0])
    assert regenerate(ref) is None
    assert regenerate(ref, {*RELEASED, *accepted(tasks.train)}) == tasks.train[0]
    unsafe = TaskRef("reasoning_gym/n_queens", gym.version(), "{}", 0, 0)
    assert "has not been checked" in task_or_reason(unsafe, [("reasoning_gym/n_queens", "{}")])


def test_without_the_extra_gym_tasks_are_refused_with_the_remedy(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    gym.version.cache_clear()
    ref = TaskRef("reasoning_gym/bf", "0.1.25", gym.canonical(gym.RELEASED["bf"]), 0, 0)
    assert "pip install 'coterie[gym]'" in task_or_reason(ref)
    gym.version.cache_clear()


def test_tasks_from_elsewhere_have_no_reference():
    assert reference(pocket_tasks("train", 1, 0)[0]) is None
    assert accepted(pocket_tasks("train", 3, 0)) == frozenset()
