import numpy as np
import pytest

from coterie.checks.learning import FEWEST_STEPS
from tests.checks.sample import BEFORE, RUN, SOUND, found, record, status


def test_the_noise_floor_is_the_prediction_interval_of_one_more_evaluation():
    """sd of 0.20, 0.22, 0.18 is 0.02; t(2) for 95 % is 4.3027 by the tables; 4.3027 * 0.02 * sqrt(4 / 3) = 0.0994."""
    what, said = found("noise floor")
    assert what == "ok"
    assert "±0.099 " in said
    assert status("noise floor", record={**RUN, "score": 0.2 + 0.098}) == "note"
    assert status("noise floor", record={**RUN, "score": 0.2 + 0.101}) == "ok"
    assert status("noise floor", record={**RUN, "score": 0.2 - 0.101}) == "ok"


def test_an_evaluation_that_moves_by_more_than_the_effect_is_a_fault():
    assert status("noise floor", before={**BEFORE, "repeats": [0.2, 0.31, 0.19]}) == "fault"


@pytest.mark.parametrize("repeats", [[0.2], [], [0.2, None]])
def test_one_evaluation_has_no_noise(repeats):
    assert status("noise floor", before={**BEFORE, "repeats": repeats}) == "unknown"


def steps(first: float, last: float, count: int = 40) -> list[dict]:
    """Rewards that rise in a straight line, ±0.01 in turn."""
    line = np.linspace(first, last, count)
    return [{"step": i + 1, "reward": float(at) + (-1) ** i * 0.01} for i, at in enumerate(line)]


def test_reward_that_rose_while_the_score_did_not():
    flat = record(score=0.2)  # the very tasks that the untrained model solves
    assert status("reward and score", record=flat, metrics=steps(0.2, 0.6)) == "fault"
    assert status("reward and score", record=flat, metrics=steps(0.2, 0.23)) == "ok"
    assert status("reward and score", record=flat, metrics=steps(0.6, 0.2)) == "ok"
    assert status("reward and score", record=record(score=0.6), metrics=steps(0.2, 0.6)) == "ok"


def test_a_score_that_is_too_uncertain_for_a_fault_is_a_note():
    """Three tasks won and two lost of ten: +0.1 ± 0.233."""
    mixed = {**RUN, "per_task": {f"t{i}": [float(i in (2, 3, 4))] for i in range(10)}}
    assert status("reward and score", record=mixed, metrics=steps(0.2, 0.6)) == "note"


def test_noisy_rewards_have_not_risen():
    """From 0.30 to 0.37 on average, with an sd of 0.5 or so in each quarter."""
    rewards = [0.8, -0.2] * 5 + [0.3] * 20 + [0.87, -0.13] * 5
    metrics = [{"step": i + 1, "reward": reward} for i, reward in enumerate(rewards)]
    assert status("reward and score", record=record(score=0.2), metrics=metrics) == "ok"


def test_a_committed_record_has_the_curve_in_place_of_metrics():
    curve = [[step["step"], step["reward"]] for step in steps(0.2, 0.6)]
    assert status("reward and score", record={**record(score=0.2), "curve": curve}, metrics=[]) == "fault"


def test_too_little_to_judge():
    assert status("reward and score", metrics=SOUND.metrics[: FEWEST_STEPS - 1]) == "unknown"
    assert status("reward and score", before=None) == "unknown"
