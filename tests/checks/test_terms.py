import pytest

from coterie.checks import CHECKS, Evidence, check_run
from tests.checks.sample import BEFORE, RUN, SAMPLER, SOUND, found, status


def test_a_sound_run_is_ok_in_every_check():
    assert {check.name: check.status for check in check_run(SOUND)} == dict.fromkeys(CHECKS, "ok")


def test_of_a_run_that_left_nothing_nothing_is_known():
    assert {check.status for check in check_run(Evidence())} == {"unknown"}


@pytest.mark.parametrize(
    ("questions", "templates", "expected"),
    [(0, 0.05, "ok"), (0, 0.06, "note"), (1, 0.0, "fault"), (0, None, "unknown")],
)
def test_overlap(questions, templates, expected):
    assert status("overlap", record={**RUN, "overlap": {"questions": questions, "templates": templates}}) == expected


def test_another_sampler_that_was_asked_for_is_a_note_and_else_a_fault():
    greedy = {"train": {"temperature": 1.0}, "evaluate": {**SAMPLER, "temperature": 0.0}}
    before = {**BEFORE, "sampling": greedy}
    assert status("sampler", record={**RUN, "sampling": greedy}, before=before) == "fault"
    asked = {**RUN["conditions"], "evaluate": {"sampling": greedy["evaluate"]}}
    assert status("sampler", record={**RUN, "sampling": greedy, "conditions": asked}, before=before) == "note"
    truncated = {"train": {"temperature": 1.0}, "evaluate": {**SAMPLER, "top_p": 0.9}}
    assert status("sampler", record={**RUN, "sampling": truncated}, before={**BEFORE, "sampling": truncated}) == "fault"


def test_an_untrained_model_that_was_sampled_otherwise_is_a_fault():
    cooler = {"train": {"temperature": 1.0}, "evaluate": {**SAMPLER, "temperature": 0.7}}
    what, said = found("sampler", before={**BEFORE, "sampling": cooler})
    assert what == "fault"
    assert "temperature 0.7" in said


@pytest.mark.parametrize(
    ("held_out", "training", "expected"),
    [(1, 0, "note"), (2, 0, "fault"), (0, 12, "note"), (0, 13, "fault")],  # of 100 and of 40 * 32 = 1280 episodes
)
def test_failed_grades(held_out, training, expected):
    metrics = [{**SOUND.metrics[0], "grading_errors": training}, *SOUND.metrics[1:]]
    assert status("grading", record={**RUN, "grading_errors": held_out}, metrics=metrics) == expected


def test_a_task_or_a_step_without_any_grade_is_a_fault():
    assert status("grading", record={**RUN, "ungraded_tasks": 1}) == "fault"
    assert status("grading", metrics=[*SOUND.metrics, {"step": 41, "reward": None, "episodes": 32, "grading_errors": 0}]) == "fault"
