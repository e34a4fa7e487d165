"""Published scores judged again: every comparison against scipy, and files of another shape."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from coterie.stats.published import judge
from coterie.types import CoterieError

FILE = Path(__file__).parents[1] / "data" / "published.json"
SHARED = Path(__file__).parents[3] / "shared" / "reference" / "published.json"
PUBLISHED = json.loads(FILE.read_text(encoding="utf-8"))
JUDGED = judge(PUBLISHED)


def find(recipe, arm, table="arms", judged=JUDGED):
    (one,) = [one for one in judged if (one.recipe, one.arm, one.table) == (recipe, arm, table)]
    return one


@pytest.mark.parametrize("one", JUDGED, ids=lambda one: f"{one.recipe}, {one.table}: {one.arm}")
def test_every_published_comparison_is_what_scipy_makes_of_its_scores(one):
    """Means, t interval, t and sign-flip p, to 1e-3."""
    scores = PUBLISHED[one.recipe][one.table]
    d = np.array(scores[one.arm]) - np.array(scores[one.baseline])
    assert one.ours.delta == pytest.approx(d.mean(), abs=1e-3)
    assert one.ours.n == len(d)
    if len(d) == 1:
        assert (one.ours.interval, one.ours.verdict) == (None, "unresolved")
        return
    oracle = stats.ttest_1samp(d, 0)
    assert one.ours.interval == pytest.approx(tuple(oracle.confidence_interval()), abs=1e-3)
    assert one.ours.p_t == pytest.approx(oracle.pvalue, abs=1e-3)
    flipped = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=np.inf, vectorized=True)
    assert one.ours.p == pytest.approx(min(1.0, flipped.pvalue), abs=1e-3)


def test_nothing_that_was_published_is_missing():
    """Every arm of every recipe but its baseline, each published difference once, and what was printed beside it."""
    for name, recipe in PUBLISHED.items():
        if name != "note":
            ours = [one for one in JUDGED if one.recipe == name]
            assert {one.arm for one in ours if one.table == "arms"} == set(recipe["arms"]) - {ours[0].baseline}
    printed = [(one.recipe, one.printed.delta) for one in JUDGED if one.printed]
    assert sorted(printed) == sorted(
        [
            ("talk-to-solve", 0.365),
            ("talk-methods", 0.0008),
            ("talk-methods", -0.0958),
            ("talk-methods", -0.1975),
            ("board-writers", -0.01667),
            ("message-board", 0.02917),
            ("team-talk", 0.0),
            ("reinforce-ada", 0.047),
        ]
    )
    assert {one.table for one in JUDGED} == {"arms", "shared", "used", "with untrained B"}


def test_the_headline():
    one = find("talk-to-solve", "chat")
    assert one.ours.delta == pytest.approx(0.269, abs=1e-3)
    assert one.ours.interval == pytest.approx((-0.056, 0.595), abs=1e-3)
    assert (one.ours.verdict, one.ours.seeds_needed) == ("unresolved", 5)
    assert (one.printed.verdict, one.printed.interval) == ("moved", (0.3208, 0.4092))


def test_an_arm_that_moves_alone_is_unresolved_among_the_tables_comparisons():
    one = find("talk-to-solve", "chat with untrained B")
    assert one.ours.interval[0] > 0
    assert (one.ours.family, one.ours.verdict) == (2, "unresolved")
    assert one.ours.p_holm == pytest.approx(2 * one.ours.p_t)
    assert one.row()["printed"] is None


def test_rows_are_json():
    rows = [one.row() for one in JUDGED]
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows


def test_the_shared_file_is_judged_the_same():
    if not SHARED.is_file():
        pytest.skip("the file of published scores is not part of the project; its numbers are in tests/data")
    judged = judge(json.loads(SHARED.read_text(encoding="utf-8")))
    assert [one.row() for one in judged] == [one.row() for one in JUDGED]


GOOD = {"seeds": [1, 2], "arms": {"a": [0.1, 0.2], "b": [0.3, 0.5]}, "published_delta": {"baseline": "a", "arm": "b", "delta": 0.2}}


def test_a_small_file():
    (one,) = judge({"mine": GOOD | {"base": {"a": [0, 0], "b": [1, 1]}, "extra": {"b": [0.1, 0.2]}, "minutes": {"a": 3}}})
    assert (one.baseline, one.arm, one.ours.n, one.printed.interval) == ("a", "b", 2, None)
    (unprinted,) = judge({"mine": {"seeds": 2, "arms": {"first": [0.1, 0.2], "second": [0.3, 0.5]}}})
    assert (unprinted.baseline, unprinted.printed) == ("first", None)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ([], "one JSON object"),
        ({"note": "x"}, "no recipe"),
        ({"mine": {"arms": GOOD["arms"]}}, "mine.*seeds"),
        ({"mine": GOOD | {"arms": {"a": [0.1], "b": [0.3, 0.5]}}}, "mine: arm a needs 2"),
        ({"mine": GOOD | {"arms": {"a": [0.1, None], "b": [0.3, 0.5]}}}, "mine: arm a"),
        ({"mine": GOOD | {"published_delta": {"baseline": "z", "arm": "b", "delta": 1}}}, "baseline"),
        ({"mine": GOOD | {"published_delta": {"baseline": "a", "arm": "b"}}}, "delta"),
        ({"mine": GOOD | {"published_delta": {"baseline": "a", "arm": "b", "delta": 1, "interval": [1]}}}, "interval"),
    ],
)
def test_files_of_another_shape_are_refused(file, said):
    with pytest.raises(CoterieError, match=said):
        judge(file)
