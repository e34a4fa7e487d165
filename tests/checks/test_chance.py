import math

import pytest

from coterie.checks import over_chance
from coterie.checks.chance import off_arm
from tests.checks.sample import BEFORE, OFF, RUN, found, measured, record, status


@pytest.mark.parametrize(("share", "expected"), [(0.125, "ok"), (0.15, "note"), (0.17, "fault")])
def test_numbers_that_nobody_told_above_those_of_the_cut_channel(share, expected):
    """The off arm has 0.11, the untrained model 0.03."""
    run = measured(RUN, unheard=share)
    assert status("invented facts", record=run, siblings=[run, measured(OFF, unheard=0.11)]) == expected


def test_without_an_off_arm_of_the_seed_the_untrained_model_is_chance():
    run = measured(RUN, unheard=0.09)
    for siblings in ([run], [run, {**measured(OFF, unheard=0.5), "seed": 18}]):
        assert status("invented facts", record=run, siblings=siblings) == "fault"
        assert status("invented facts", record=run, siblings=siblings, before=measured(BEFORE, unheard=0.08)) == "ok"
    assert status("invented facts", record=run, siblings=[], before=None) == "ok"
    assert status("invented facts", record=measured(RUN, unheard=0.16), siblings=[], before=None) == "fault"


def test_use_that_is_chance_use_is_no_talk():
    what, said = found("channel off")
    assert what == "ok"
    assert "used +0.600" in said
    assert status("channel off", siblings=[RUN, measured(OFF, used=0.7)]) == "note"
    assert status("channel off", siblings=[RUN, {**OFF, "seed": 18}]) == "unknown"
    assert status("channel off", record=OFF) == "ok"


def test_over_chance_is_paired_by_seed():
    """Differences of `used` 0.5 and 0.3: mean 0.4, sd 0.1414, and t(1) = 12.706 by the tables: ± 12.706 * 0.1."""
    runs = [
        measured(record("chat", 17), used=0.6),
        measured(record("chat", 18), used=0.5),
        measured(record("chat", 19), used=0.9),
        measured(record("off", 18, deliver=False), used=0.2),
        measured(record("off", 17, deliver=False), used=0.1),
        record("off", 20, deliver=False),
    ]
    found = over_chance(runs)
    assert found.keys() == {"chat"}
    assert found["chat"]["off"] == "off"
    used = found["chat"]["measures"]["used"]
    assert used["by_seed"] == pytest.approx({"17": 0.5, "18": 0.3})
    assert used["mean"] == pytest.approx(0.4)
    assert (used["low"], used["high"]) == pytest.approx((0.4 - 1.2706, 0.4 + 1.2706), abs=1e-4)
    assert "agree" not in found["chat"]["measures"]  # None in both


def test_one_seed_has_no_interval_and_no_off_arm_no_row():
    found = over_chance([RUN, OFF])
    assert math.isclose(found["chat"]["measures"]["shared"]["mean"], 0.7)
    assert found["chat"]["measures"]["shared"]["low"] is None
    assert over_chance([RUN, record("other", 17)]) == {}


def test_the_off_arm_is_the_one_that_differs_least():
    far = record("a-far", deliver=False)
    far["conditions"] = {**far["conditions"], "credit": {"kind": "raft"}, "draw": {"kind": "dynamic"}}
    other_kind = record("a-vote", deliver=False)
    other_kind["conditions"] = {**other_kind["conditions"], "protocol": {"kind": "debate", "deliver": False}}
    assert off_arm(RUN, [far, other_kind, OFF]) == "off"
    assert off_arm(RUN, [far, other_kind]) == "a-far"
    assert off_arm(RUN, [other_kind]) is None
    assert off_arm(OFF, [OFF]) is None
