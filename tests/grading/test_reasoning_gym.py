import pytest

from coterie.grading.base import GradingError
from coterie.types import Task

pytest.importorskip("reasoning_gym", reason="needs the extra gym")

from coterie.grading.reasoning_gym import ReasoningGym, tagged
from coterie.tasks import reasoning_gym as gym


def first(name: str) -> Task:
    config = gym.canonical(gym.RELEASED[name])
    return next(task for i in range(50) if isinstance(task := gym.item(name, config, 0, i), Task))


TASKS = {name: first(name) for name in gym.RELEASED}


def grade(text: str, name: str) -> float | GradingError:
    return ReasoningGym().grade_tasks([(text, TASKS[name])])[0]


@pytest.mark.parametrize("name", gym.RELEASED)
def test_the_right_answer_is_worth_one_in_tags_a_box_and_a_line(name):
    """propositional_logic, whose answer is None, among them: genrl's reward for it is always 0."""
    answer = TASKS[name].answer
    assert grade(f"<think>7 <answer>no</answer></think>\n<answer>\n{answer}\n</answer> I hope.", name) == 1.0
    assert grade(rf"So \boxed{{{answer}}}.", name) == 1.0
    if "\n" not in answer:
        assert grade(f"I think:\n{answer}\n", name) == 1.0
    assert grade("", name) == grade("<answer> </answer>", name) == 0.0


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>1</answer> <answer> 2 </answer>", "2"),
        ("<answer>1</answer> <answer>2", "1"),
        ("<answer>1 <answer>2</answer>", "2"),
        ("1</answer>", None),
        ("<answer>1", None),
    ],
)
def test_the_last_tags_that_are_closed_count(text, found):
    assert tagged(text) == found


def test_partial_credit_is_the_package_s():
    """By hand: a fraction that keeps the old numerator 0.1, one that is neither 0.05; a right text inside a longer one its share; a
    day of the month exp(-5 x relative error)."""
    about = TASKS["fraction_simplification"].meta["entry"]["metadata"]
    assert grade(f"<answer>{about['numerator']}/1</answer>", "fraction_simplification") == 0.1
    assert grade("<answer>1/99999</answer>", "fraction_simplification") == 0.05
    word = TASKS["bf"].answer
    assert grade(f"<answer>{word}!</answer>", "bf") == pytest.approx(len(word) / (len(word) + 1))
    assert grade("<answer>P</answer>", "bf") == 0.0
    config = gym.canonical({"year": 2023, "tasks": ["recurring_event_day"]})
    task = next(t for i in range(50) if (t := gym.item("calendar_arithmetic", config, 0, i)).answer == "10")
    assert ReasoningGym().grade_tasks([("<answer>12</answer>", task)])[0] == pytest.approx(0.36787944)


def test_binary_matrix_gives_what_the_package_gives_to_lists():
    task = TASKS["binary_matrix"]
    package = gym.dataset("binary_matrix", task.meta["reference"]["config"])
    rows = [[int(cell) for cell in line.split()] for line in task.answer.split("\n")]
    for answer in (str(rows), str(rows[1:]), "[1", "[[1], 2]", "7", task.answer.replace("\n", " ")):
        assert grade(f"<answer>{answer}</answer>", "binary_matrix") == package.score_answer(answer, task.meta["entry"])
    assert grade(f"<answer>{rows}</answer>", "binary_matrix") == 0.1


def test_an_answer_is_never_run(tmp_path):
    """The package's binary_matrix scorer calls eval on the answer. Breaks when the package's scorer is called for it."""
    file = tmp_path / "written"
    attack = f"open({str(file)!r}, 'w').write('x')"
    assert grade(f"<answer>{attack}</answer>", "binary_matrix") == 0.0
    assert not file.exists()
    gym.dataset("binary_matrix", TASKS["binary_matrix"].meta["reference"]["config"]).score_answer(
        attack, TASKS["binary_matrix"].meta["entry"]
    )
    assert file.exists(), "the attack is a real one"


@pytest.mark.parametrize(
    ("answer", "name"),
    [
        ("∨".join(f"n{i}" for i in range(60)), "propositional_logic"),  # 2**60 rows of a truth table
        ("¬" * 20_000 + "P", "propositional_logic"),
        ("(" * 20_000, "propositional_logic"),
        ("9**9**9**9", "binary_matrix"),
        ("[" * 900, "binary_matrix"),
        ("9" * 100_000, "calendar_arithmetic"),
        ("1e999999999999", "decimal_arithmetic"),
        ("NaN", "decimal_arithmetic"),
    ],
)
def test_answers_that_would_hang_a_scorer_are_wrong(answer, name):
    assert grade(f"<answer>{answer}</answer>", name) == 0.0


def test_what_a_scorer_raises_is_an_error_and_touches_no_other_answer(monkeypatch):
    task = TASKS["bf"]
    broken = Task("t", "q", "a", "q", meta={**task.meta, "entry": {"answer": None, "metadata": {}}})
    answers = [("<answer>x</answer>", broken), (f"<answer>{task.answer}</answer>", task), ("7", Task("t9", "q", "7", "q"))]
    error, right, foreign = ReasoningGym().grade_tasks(answers)
    assert isinstance(error, GradingError)
    assert error.reason.startswith("the scorer of bf raised TypeError")
    assert right == 1.0
    assert isinstance(foreign, GradingError)
    assert 'task t9 is not of tasks.kind = "reasoning_gym"' in foreign.reason


def test_a_score_beyond_one_is_an_error_and_no_full_mark():
    """calendar_arithmetic divides by the right number: for -1 a wrong 30 is worth exp(155)."""
    task = TASKS["calendar_arithmetic"]
    entry = {"answer": "-1", "metadata": {"task": "count_days"}}
    broken = Task("t", "q", "-1", "q", meta={**task.meta, "entry": entry})
    right, wrong = ReasoningGym().grade_tasks([("<answer>-1</answer>", broken), ("<answer>30</answer>", broken)])
    assert right == 1.0
    assert isinstance(wrong, GradingError)


def test_the_answer_alone_is_not_enough():
    (error,) = ReasoningGym().grade([("7", "7")])
    assert isinstance(error, GradingError)
    assert "call grade_tasks" in error.reason
