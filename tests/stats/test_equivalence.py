"""Equivalence against scipy's one-sided tests, and what it claims."""

import numpy as np
import pytest
from scipy import stats

from coterie.stats.compare import as_row, compare, sentence
from coterie.stats.equivalence import tost
from coterie.types import CoterieError

CASES = [[0.01, -0.02, 0.015], [0.04, 0.03, 0.06, 0.05, 0.02], [-0.2, 0.3, 0.1], [-0.03, -0.04, -0.035, -0.05]]


@pytest.mark.parametrize("differences", CASES)
@pytest.mark.parametrize("margin", [0.02, 0.05, 0.3])
def test_agrees_with_scipys_one_sided_tests(differences, margin):
    x = np.array(differences)
    found = tost(x.mean(), x.std(ddof=1) / np.sqrt(len(x)), len(x) - 1, margin)
    assert found.p_no_worse == pytest.approx(stats.ttest_1samp(x, -margin, alternative="greater").pvalue)
    assert found.p_no_better == pytest.approx(stats.ttest_1samp(x, margin, alternative="less").pvalue)
    interval = stats.ttest_1samp(x, 0).confidence_interval(0.9)
    assert found.interval == pytest.approx(tuple(interval))
    assert found.no_worse == (interval.low >= -margin)
    assert found.equivalent == (interval.low >= -margin and interval.high <= margin)


def test_no_worse_is_not_equivalent():
    gain = compare(dict.fromkeys(range(5), 0.5), {s: 0.6 + 0.01 * s for s in range(5)}).equivalence
    assert (gain.no_worse, gain.equivalent) == (True, False)
    loss = compare({s: 0.6 + 0.01 * s for s in range(5)}, dict.fromkeys(range(5), 0.5)).equivalence
    assert (loss.no_worse, loss.equivalent) == (False, False)


def test_at_the_margin_it_is_claimed_one_time_in_twenty():
    rng = np.random.default_rng(8)
    x = rng.normal(-0.05, 0.02, (3000, 5))
    error = x.std(axis=1, ddof=1) / np.sqrt(5)
    claimed = np.mean([tost(m, e, 4, 0.05).no_worse for m, e in zip(x.mean(axis=1), error, strict=True)])
    assert claimed == pytest.approx(0.05, abs=0.012)


def test_welchs_error_is_used_when_seeds_do_not_match():
    a, b = [0.50, 0.52, 0.51], [0.51, 0.50, 0.52, 0.53]
    found = compare(dict(enumerate(a)), {10 + at: score for at, score in enumerate(b)}).equivalence
    oracle = stats.ttest_ind(np.array(b) + 0.05, a, equal_var=False, alternative="greater")
    assert found.p_no_worse == pytest.approx(oracle.pvalue)


def test_the_sentence_and_the_row_carry_it():
    base = dict.fromkeys(range(8), 0.5)
    small = compare(base, {s: 0.5 + (0.01 if s % 2 else -0.008) for s in range(8)})
    assert small.verdict == "no change detected"
    assert "Shown: no worse by 0.05, and the same within 0.05 (90 % interval" in sentence(small, "a", "b")
    row = as_row(small, "a", "b")["equivalence"]
    assert (row["margin"], row["no_worse"], row["equivalent"]) == (0.05, True, True)
    assert row["p_equivalent"] == max(small.equivalence.p_no_worse, small.equivalence.p_no_better)
    wide = compare(base, {s: 0.5 + (0.3 if s % 2 else -0.28) for s in range(8)})
    assert wide.verdict == "unresolved"
    assert "no worse" not in sentence(wide, "a", "b")


@pytest.mark.parametrize(
    ("scores", "verdict", "said"),
    [
        ([0.56, 0.53, 0.51, 0.57, 0.50], "unresolved", "Shown: no worse by 0.05; not shown: the same"),
        ([0.545, 0.55, 0.54, 0.555, 0.545], "moved", ""),  # that a gain is no loss goes without saying
        ([0.455, 0.445, 0.46, 0.452, 0.45], "moved the wrong way", ""),
        ([0.49, 0.48, 0.495, 0.485, 0.49], "moved the wrong way", "Shown: no worse by 0.05, and the same"),
    ],
)
def test_only_what_adds_to_the_verdict_is_said(scores, verdict, said):
    c = compare(dict.fromkeys(range(5), 0.5), dict(enumerate(scores)))
    assert c.verdict == verdict
    text = sentence(c, "a", "b")
    assert said in text if said else "hown" not in text


def test_no_spread_shows_nothing_and_a_bad_margin_is_refused():
    assert tost(0.0, 0.0, 4, 0.05) is None
    assert compare({1: 0.5, 2: 0.5}, {1: 0.5, 2: 0.5}).equivalence is None
    for margin in (0.0, -0.1, float("nan")):
        with pytest.raises(CoterieError, match="margin"):
            tost(0.0, 0.1, 4, margin)
