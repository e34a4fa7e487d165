import calendar
import datetime
import hashlib
import itertools
import re
import subprocess
import sys
from fractions import Fraction

import pytest

from coterie import builtin as _  # noqa: F401 (registers the kinds)
from coterie.config.tasks import ReasoningGymTasksConfig
from coterie.kinds import About, make
from coterie.recipe import load_recipe, parse_overrides, resolve
from coterie.tasks.base import TaskSet
from coterie.tasks.overlap import check_overlap, normalise
from coterie.types import CoterieError

pytest.importorskip("reasoning_gym", reason="needs the extra gym")

from coterie.tasks import reasoning_gym as gym

NINE = tuple(gym.RELEASED)


def load(train=90, held_out=18, seed=0, specialties=NINE, **settings) -> TaskSet:
    return gym.load_reasoning_gym(specialties, settings, train, held_out, seed)


SET = load()


def test_the_default_is_the_nine_of_the_paper():
    config = ReasoningGymTasksConfig(kind="reasoning_gym")
    assert config.specialties == NINE
    assert len(NINE) == 9


def test_specialties_take_turns_and_a_larger_set_only_adds():
    assert [task.meta["specialty"] for task in SET.train[:11]] == [*NINE, *NINE[:2]]
    small = load(50, 7)
    assert small.train == SET.train[:50]
    assert small.held_out == SET.held_out[:7]
    assert load(0, 18).held_out == SET.held_out, "how many are trained on does not change what is held out"


def test_answers_by_other_means():
    """Base conversion by int(), fractions by Fraction, leap years and weekdays by the calendar, distances by brute force."""
    seen = set()
    for task in load(360, 0).train:
        about = task.meta["entry"]["metadata"]
        match task.meta["specialty"]:
            case "base_conversion":
                bases = re.findall(r"(base-\d+|binary|hexadecimal)", task.question.splitlines()[-1])
                source, target = ({"binary": 2, "hexadecimal": 16}.get(base) or int(base[5:]) for base in bases)
                number = re.search(r"number (\w+) to ", task.question)
                assert int(number[1], source) == int(task.answer, target)
            case "fraction_simplification":
                asked = Fraction(*map(int, re.findall(r"\d+", task.question)[:2]))
                assert Fraction(*map(int, re.findall(r"\d+", task.answer))) == asked
            case "binary_matrix":
                rows = [line.split() for line in task.question.splitlines() if re.fullmatch(r"[01 ]+", line)]
                zeros = [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell == "0"]
                far = [[min(abs(i - a) + abs(j - b) for a, b in zeros) for j in range(len(rows))] for i in range(len(rows))]
                assert task.answer == "\n".join(" ".join(map(str, row)) for row in far)
            case "calendar_arithmetic" if about["task"] == "is_leap_year":
                assert task.answer == ("Yes" if calendar.isleap(int(re.search(r"\d{4}", task.question)[0])) else "No")
            case "calendar_arithmetic" if about["task"] == "weekday_of_date":
                date = re.search(r"[A-Z]\w+ \d+, \d{4}|\d\d/\d\d/\d{4}", task.question)[0]
                form = "%m/%d/%Y" if "/" in date else "%B %d, %Y"
                assert task.answer == f"{datetime.datetime.strptime(date, form):%A}"
            case _:
                continue
        seen.add((task.meta["specialty"], about.get("task")))
    assert len(seen) == 5


def test_seeds_and_splits_share_no_question():
    """Train sets of four seeds against held-out sets of four seeds. Small questions (3 x 3 matrices, values to 20) repeat from seed
    to seed, so this breaks when the split goes by number and not by question."""
    small = {"base_conversion": {"min_base": 2, "max_base": 5, "max_value": 20}, "binary_matrix": {"min_n": 3, "max_n": 3}}
    sets = [load(200, 24, seed, tuple(small), **small) for seed in range(4)]
    trained = {normalise(task.question) for one in sets for task in one.train}
    assert len(trained) < 4 * 200, "the seeds do repeat questions"
    for one in sets:
        assert not trained & {normalise(task.question) for task in one.held_out}
        check_overlap(TaskSet(sets[0].train, one.held_out))
    items = [{task.meta["reference"]["seed"] * 2**32 + task.meta["reference"]["index"] for task in one.train} for one in sets]
    assert len(set.union(*items)) == sum(map(len, items)), "no number under two seeds"


def test_repeats_are_dropped_and_counted():
    one = load(60, 0, 0, ("base_conversion",), base_conversion={"min_base": 2, "max_base": 3, "max_value": 60})
    last = one.train[-1].meta["reference"]["index"]
    read = [gym.item("base_conversion", one.train[0].meta["reference"]["config"], 0, i) for i in range(last + 1)]
    wanted = {normalise(task.question) for task in read if gym.split_of(task.question) == "train"}
    passed = {normalise(task.question) for task in read}
    assert [normalise(task.question) for task in one.train] == list(
        dict.fromkeys(normalise(t.question) for t in read if normalise(t.question) in wanted)
    )
    assert one.skipped == len(read) - len(passed) > 0


def test_a_specialty_that_is_used_up_says_so():
    with pytest.raises(
        CoterieError, match=r"base_conversion ran out of new questions with \d+ for train, \d+ for held_out; ask for"
    ):
        load(50, 0, 0, ("base_conversion",), base_conversion={"min_base": 2, "max_base": 3, "max_value": 5})


def test_an_item_without_a_right_answer_is_no_task():
    """Item 0 to 999 of propositional_logic hold some whose example does not follow from the premises (brute force below)."""
    config = gym.canonical(gym.RELEASED["propositional_logic"])
    data = gym.dataset("propositional_logic", config)
    made = [gym.item("propositional_logic", config, 0, index) for index in range(500)]
    refused = [index for index, task in enumerate(made) if isinstance(task, str)]
    assert refused
    assert {follows(data[index]["metadata"]) for index in refused} == {False}
    kept = [task for task in made[:60] if not isinstance(task, str)]
    assert all(follows(task.meta["entry"]["metadata"]) for task in kept)
    assert all(task.answer == task.meta["entry"]["metadata"]["example_answer"] for task in kept)


def follows(about) -> bool:
    """Whether the example follows, by a truth table."""

    def holds(text, world):
        """By substitution from the innermost brackets outwards."""
        text = text.replace(" ", "")
        for name, value in world.items():
            text = text.replace(name, "1" if value else "0")
        while len(text) > 1:
            before = text
            text = text.replace("¬1", "0").replace("¬0", "1").replace("(1)", "1").replace("(0)", "0")
            for a, b in itertools.product("01", repeat=2):
                values = {"∧": a + b == "11", "∨": a + b != "00", "→": a + b != "10", "↔": a == b}
                for operator, value in values.items():
                    text = text.replace(f"({a}{operator}{b})", "1" if value else "0")
            assert text != before, text
        return text == "1"

    worlds = [dict(zip(about["variables"], row, strict=True)) for row in itertools.product((0, 1), repeat=len(about["variables"]))]
    example = about["example_answer"]
    example = example if example[0] in "(¬" or len(example) == 1 else f"({example})"
    return all(holds(example, world) for world in worlds if all(holds(premise, world) for premise in about["premises"]))


def test_the_same_tasks_in_another_process_and_with_another_precision():
    """decimal_arithmetic sets the calling thread's decimal precision. Breaks when that leaks out, or in."""
    program = (
        "import decimal, hashlib; decimal.getcontext().prec = 3\n"
        "from coterie.tasks.reasoning_gym import *\n"
        f"tasks = load_reasoning_gym({NINE!r}, {{}}, 90, 18, 0)\n"
        "print(hashlib.sha256(repr([(t.question, t.answer) for t in tasks.train + tasks.held_out]).encode()).hexdigest())\n"
        "print(decimal.getcontext().prec)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    here = hashlib.sha256(repr([(t.question, t.answer) for t in SET.train + SET.held_out]).encode()).hexdigest()
    assert said == [here, "3"], "and nothing else is printed, such as the dots of bf's compiler"


@pytest.mark.parametrize(
    ("specialties", "settings", "message"),
    [
        ((), {}, "name at least one specialty"),
        (("bf", "bf"), {}, "each only once"),
        (("sums",), {}, "reasoning-gym .* has no sums; the released nine are base_conversion"),
        (("n_queens",), {}, "the scorer of n_queens has not been checked .* choose among .*gcd"),
        (("bf",), {"arc_1d": {}}, "tasks.settings: arc_1d is not one of tasks.specialties"),
        (("bf",), {"bf": {"difficulty": 9}}, "tasks.settings.bf: difficulty must be less than 4"),
        (("bf",), {"bf": {"hardness": 1}}, "tasks.settings.bf: .*hardness"),
        (("bf",), {"bf": {"seed": 1}}, "tasks.settings.bf.seed is not yours to set"),
    ],
)
def test_mistakes_are_explained(specialties, settings, message):
    with pytest.raises(CoterieError, match=message):
        load(9, 0, 0, specialties, **settings)


def test_other_data_sets_with_a_plain_scorer_may_be_used():
    one = load(4, 2, 1, ("gcd", "bf"), gcd={"max_value": 99})
    assert [task.meta["specialty"] for task in one.train] == ["gcd", "bf"] * 2
    assert all(int(task.answer) > 0 for task in one.train[::2])


def configured(*sets):
    """A run's settings, from a recipe with one copy that is given the whole problem."""
    recipe = load_recipe("reinforce-ada")
    return resolve(recipe, profile="pocket", arm="fixed", seed=17, overrides=parse_overrides(list(sets)))


GYM = ("tasks.kind=reasoning_gym", "tasks.train=18", "tasks.held_out=9")


def test_from_settings_to_scores():
    """The kinds as a recipe names them, a specialty's own settings, and the grader on what the loader makes."""
    bases = "tasks.settings={base_conversion = {min_base = 2, max_base = 3, min_value = 0, max_value = 999}}"
    config = configured(*GYM, "grading.kind=reasoning_gym", bases)
    tasks = make("tasks", config.tasks, About(config))
    assert (len(tasks.train), len(tasks.held_out)) == (18, 9)
    assert {task.meta["entry"]["metadata"]["target_base"] for task in tasks.train[::9]} <= {2, 3}
    grader = make("grading", config.grading, About(config))
    assert grader.grade_tasks([(f"<answer>{task.answer}</answer>", task) for task in tasks.train]) == [1.0] * 18


def test_graders_and_protocols_that_do_not_fit_are_refused():
    config = configured(*GYM)
    with pytest.raises(CoterieError, match=r'grading.kind = "numeric" cannot judge; set grading.kind = "reasoning_gym"'):
        make("tasks", config.tasks, About(config))
    config = configured(*GYM, "grading.kind=reasoning_gym")
    with pytest.raises(CoterieError, match=r"is not split into facts"):
        make("tasks", config.tasks, About(config, ("A", "B")))


def test_pocket_specialties_from_settings():
    config = configured("tasks.kind=pocket_specialties", "tasks.specialties=['sums', 'boxes']", "tasks.train=6", "tasks.held_out=2")
    tasks = make("tasks", config.tasks, About(config, ("A", "B")))
    assert [task.meta["specialty"] for task in tasks.train] == ["sums", "boxes"] * 3
    assert all(set(task.private) == {"A", "B"} for task in tasks.train)
