import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from coterie.grading import math_verify
from coterie.grading.base import GradingError
from coterie.grading.math_verify import MathVerify
from coterie.grading.numeric import Numeric
from coterie.types import CoterieError

from .corpus import AGREED, DIFFERENT

needs_package = pytest.mark.skipif(
    importlib.util.find_spec("math_verify") is None, reason="the extra coterie[math] is not installed"
)

FAKE = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    text = json.loads(line)["text"]
    if text == "hang":
        time.sleep(600)
    if text == "die":
        os.kill(os.getpid(), 9)
    if text == "leave":
        sys.exit(3)
    print(json.dumps({"score": 1.0}), flush=True)
"""
"""A worker that does what a planted answer says, so that the supervision is tested without a lucky expression."""


@pytest.fixture(scope="module")
def grader():
    with MathVerify(workers=1, timeout=60) as grader:
        yield grader


@pytest.fixture
def fake(tmp_path, monkeypatch):
    file = tmp_path / "worker.py"
    file.write_text(FAKE)
    monkeypatch.setattr(math_verify, "WORKER", file)


def processes(grader):
    return list(grader._pool._processes)


@needs_package
def test_the_published_cases(grader):
    cases = [(text, gold, score) for text, gold, score in AGREED] + [(text, gold, score) for text, gold, score, _, _ in DIFFERENT]
    scores = grader.grade([(text, gold) for text, gold, _ in cases])
    assert [(text, gold, score) for (text, gold, _), score in zip(cases, scores, strict=True)] == cases


def test_numeric_agrees_with_math_verify_where_it_should_and_differs_where_it_says():
    cases = [(text, gold, score) for text, gold, score in AGREED] + [(text, gold, score) for text, gold, _, score, _ in DIFFERENT]
    scores = Numeric().grade([(text, gold) for text, gold, _ in cases])
    assert [(text, gold, score) for (text, gold, _), score in zip(cases, scores, strict=True)] == cases


@needs_package
def test_boxed_only_judges_the_box_alone():
    with MathVerify(boxed_only=True, workers=1, timeout=60) as grader:
        answers = [("it is 18", "18"), (r"7, so \boxed{18}, not 7", "18"), (r"\boxed{7}, \boxed{18}", "18"), (r"\boxed{18", "18")]
        assert grader.grade(answers) == [0.0, 1.0, 1.0, 0.0]


@needs_package
def test_algebra(grader):
    assert grader.grade([(r"\boxed{1+x}", "x+1"), (r"\boxed{\sqrt{8}}", r"2\sqrt{2}"), (r"\boxed{[0,1)}", "[0,1)")]) == [1.0] * 3


@needs_package
@pytest.mark.parametrize("gold", ["", "???"])
def test_a_gold_answer_that_cannot_be_parsed_is_an_error(grader, gold):
    bad, good = grader.grade([("18", gold), ("18", "18")])
    assert isinstance(bad, GradingError)
    assert "gold answer" in bad.reason
    assert good == 1.0


@needs_package
def test_a_pathological_expression_becomes_an_error_and_its_worker_is_replaced():
    with MathVerify(workers=1, timeout=3) as grader:
        assert grader.grade([("18", "18")]) == [1.0]
        before = processes(grader)
        started = time.perf_counter()
        bad, good = grader.grade([(r"\boxed{(9^{9^{9^{9}}})!}", "18"), (r"\boxed{18}", "18")])
        assert bad == GradingError("math-verify gave no answer within 3 s")
        assert good == 1.0
        assert time.perf_counter() - started < 60
        assert processes(grader) != before


def test_a_hanging_answer_costs_only_itself(fake):
    with MathVerify(workers=2, timeout=1) as grader:
        started = time.perf_counter()
        scores = grader.grade([("a", "1"), ("hang", "1"), ("b", "1"), ("c", "1")])
        assert [scores[i] for i in (0, 2, 3)] == [1.0] * 3
        assert scores[1] == GradingError("math-verify gave no answer within 1 s")
        assert time.perf_counter() - started < 30
        assert grader.grade([("d", "1")] * 4) == [1.0] * 4
        assert all(process.poll() is None for process in processes(grader))


@pytest.mark.parametrize(("text", "how"), [("die", "SIGKILL"), ("leave", "exit code 3")])
def test_a_worker_that_dies_costs_only_its_answer(fake, text, how):
    with MathVerify(workers=1, timeout=30) as grader:
        assert grader.grade([("a", "1"), (text, "1"), ("b", "1")]) == [
            1.0,
            GradingError(f"the math-verify worker died ({how})"),
            1.0,
        ]


def test_a_worker_killed_from_outside_during_an_answer_or_while_idle(fake):
    with MathVerify(workers=1, timeout=60) as grader:
        assert grader.grade([("a", "1")]) == [1.0]
        (idle,) = processes(grader)
        os.kill(idle.pid, signal.SIGKILL)
        while idle.poll() is None:
            time.sleep(0.01)
        assert grader.grade([("b", "1")]) == [1.0]  # nobody's answer was lost
        (busy,) = [process for process in processes(grader) if process.poll() is None]
        threading.Timer(0.5, os.kill, (busy.pid, signal.SIGKILL)).start()
        assert grader.grade([("hang", "1"), ("c", "1")]) == [GradingError("the math-verify worker died (SIGKILL)"), 1.0]


def test_a_worker_that_cannot_start_is_an_error_for_each_answer(tmp_path, monkeypatch):
    broken = tmp_path / "worker.py"
    broken.write_text("raise SystemExit(7)")
    monkeypatch.setattr(math_verify, "WORKER", broken)
    with MathVerify(workers=1) as grader:
        assert grader.grade([("18", "18")] * 2) == [GradingError("the math-verify worker died (exit code 7)")] * 2


def test_many_threads_share_one_grader_and_get_their_own_answers_back(tmp_path, monkeypatch):
    echo = tmp_path / "worker.py"
    echo.write_text(FAKE.replace('{"score": 1.0}', '{"score": float(text) if text.isdigit() else 0.0}'))
    monkeypatch.setattr(math_verify, "WORKER", echo)
    results = {}
    with MathVerify(workers=2, timeout=30) as grader:

        def work(k):
            results[k] = grader.grade([(str(100 * k + i), "1") for i in range(20)])

        threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(processes(grader)) == 2
    assert results == {k: [float(100 * k + i) for i in range(20)] for k in range(6)}


def test_the_callers_alarm_is_left_alone(fake):
    handler = signal.getsignal(signal.SIGALRM)
    signal.setitimer(signal.ITIMER_REAL, 500)
    try:
        with MathVerify(workers=1, timeout=1) as grader:
            grader.grade([("a", "1"), ("hang", "1")])
        assert signal.getsignal(signal.SIGALRM) is handler
        assert 400 < signal.getitimer(signal.ITIMER_REAL)[0] <= 500
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def test_close_ends_the_workers_and_is_final(fake):
    grader = MathVerify(workers=2)
    grader.grade([("a", "1")] * 4)
    left = processes(grader)
    assert left
    grader.close()
    grader.close()
    assert all(process.poll() is not None for process in left)
    with pytest.raises(RuntimeError, match="closed"):
        grader.grade([("a", "1")])


def test_python_ends_its_workers_when_it_exits(tmp_path):
    (tmp_path / "worker.py").write_text(FAKE)
    script = (
        "from coterie.grading import math_verify as m; from pathlib import Path\n"
        f"m.WORKER = Path({str(tmp_path / 'worker.py')!r})\n"
        "g = m.MathVerify(workers=1); g.grade([('a', '1')]); print([p.pid for p in g._pool._processes][0])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)


def test_without_the_extra_the_remedy_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CoterieError, match=r"pip install 'coterie\[math\]'"):
        MathVerify()


def test_nothing_to_grade(fake):
    with MathVerify() as grader:
        assert grader.grade([]) == []
        assert not processes(grader)
