"""leave_one_out and readers_mean as estimators of a gradient, on games small enough that every outcome is enumerated.

A note is one yes-or-no choice with the chance p, so its score function is n - p (the derivative of the log-probability by the
logit), and the true gradient of any expectation is p(1 - p) times its difference between n = 1 and n = 0.
"""

import itertools
import statistics

import pytest

from coterie.credit.leave_one_out import LeaveOneOut
from coterie.credit.readers_mean import readers_mean
from coterie.types import Probe
from tests.credit.games import bits, board, chat, episode, group, say

RING = 3
WRITES = (0.3, 0.6, 0.8)
CHANCE = {(1, 1): 0.9, (1, 0): 0.4, (0, 1): 0.7, (0, 0): 0.2, (None, 1): 0.5, (None, 0): 0.3, (1, None): 0.6, (0, None): 0.1}
"""How likely a reader is right, given its own note and the next one: the second is worth more when the first is bad, and a missing
note is sometimes better than a bad one."""


def chances(notes):
    """Readers differ in skill, so that no symmetry makes a wrong estimator right."""
    return [CHANCE[notes[j], notes[(j + 1) % RING]] * (0.5 + 0.2 * j) for j in range(RING)]


def without(notes, i):
    return [None if k == i else n for k, n in enumerate(notes)]


def readers_of(i):
    return (i, (i - 1) % RING)


def true_gradient(i, readers):
    """Of the mean chance of `readers`, by the writer's logit."""
    total = 0.0
    for notes, weight in bits(*WRITES):
        sign = 1 if notes[i] else -1
        marginal = weight / (WRITES[i] if notes[i] else 1 - WRITES[i])
        total += marginal * sign * statistics.fmean(chances(notes)[j] for j in readers)
    return WRITES[i] * (1 - WRITES[i]) * total


@pytest.mark.parametrize("i", range(RING))
def test_leave_one_out_has_the_gradient_of_the_readers_score(i):
    """Breaks when the replay is weighted otherwise, when other readers count, or when anything that depends on the note is
    subtracted. The plain score of the readers must give the same, of course, and does."""
    rule, left, plain = LeaveOneOut(1), 0.0, 0.0
    for notes, p_notes in bits(*WRITES):
        for answers, p_answers in bits(*chances(notes)):
            played = group(board([float(a) for a in answers], visible=2))
            p = p_notes * p_answers * (notes[i] - WRITES[i])
            plain += p * statistics.fmean(answers[j] for j in readers_of(i))
            again = chances(without(notes, i))
            for new, p_new in bits(*(again[j] for j in readers_of(i))):
                scores = [float(a) for a in answers]
                for j, score in zip(readers_of(i), new, strict=True):
                    scores[j] = float(score)
                replays = {Probe(0, t): board(scores, visible=2) for t in range(RING)}
                left += p * p_new * rule.advantages(played, replays)[0][i]
    assert left == pytest.approx(true_gradient(i, readers_of(i)), abs=1e-12)
    assert plain == pytest.approx(left, abs=1e-12)


@pytest.mark.parametrize("i", range(RING))
def test_readers_mean_shrinks_the_gradient_by_the_note_s_own_share_of_the_mean(i):
    """On a ring of three the mean over the notes is the mean of all readers, and two of the three are the note's own: a third of
    the gradient is left. (On the published ring of four, a half.)"""
    mean = 0.0
    for notes, p_notes in bits(*WRITES):
        for answers, p_answers in bits(*chances(notes)):
            (credits,) = readers_mean(group(board([float(a) for a in answers], visible=2)))
            mean += p_notes * p_answers * (notes[i] - WRITES[i]) * credits[i]
    assert mean == pytest.approx(true_gradient(i, readers_of(i)) / 3, abs=1e-12)


@pytest.mark.parametrize("j", range(RING))
def test_readers_have_the_gradient_of_their_own_score_but_for_their_share_of_the_mean(j):
    """An answer is the choice itself here: true gradient E[c(1 - c)], of which the mean of three takes a third."""
    rule, found, true = LeaveOneOut(1), 0.0, 0.0
    for notes, p_notes in bits(*WRITES):
        c = chances(notes)
        true += p_notes * c[j] * (1 - c[j])
        for answers, p_answers in bits(*c):
            played = board([float(a) for a in answers], visible=2)
            credits = rule.advantages(group(played), {Probe(0, t): played for t in range(RING)})
            found += p_notes * p_answers * (answers[j] - c[j]) * credits[0][RING + j]
    assert found == pytest.approx(true * 2 / 3, abs=1e-12)


def moments(terms):
    """Mean and variance of equally likely terms."""
    terms = list(terms)
    return statistics.fmean(terms), statistics.pvariance(terms)


def test_three_other_notes_add_noise_to_readers_mean_and_none_to_leave_one_out():
    """Two boards of four notes, each good or bad by a fair coin; every reader sees all and scores their mean. A note adds 1/4, so
    the true gradient is 1/4 * 1/4 = 1/16.

    By hand: leave_one_out pays n/4; n/4 * (n - 1/2) is 1/8 or 0, variance 1/256. readers_mean pays half the difference of the
    boards, which holds seven other coins: mean 1/32, variance 7/1024; scaled to the same mean, 7 times the variance of
    leave_one_out.
    """
    left, readers = [], []
    for notes in itertools.product((0, 1), repeat=8):
        first, second = (board([sum(of) / 4] * 4, index=k) for k, of in enumerate((notes[:4], notes[4:])))
        replays = {Probe(0, t): board([(sum(notes[:4]) - notes[t]) / 4] * 4) for t in range(4)}
        grad = notes[0] - 0.5
        left.append(grad * LeaveOneOut(1).advantages(group(first, pool=[first, second]), replays)[0][0])
        readers.append(grad * readers_mean(group(first, pool=[first, second]))[0][0])
    assert moments(left) == pytest.approx((1 / 16, 1 / 256))
    assert moments(readers) == pytest.approx((1 / 32, 7 / 1024))


@pytest.mark.parametrize("replays", [1, 2, 3])
def test_where_readers_guess_each_replay_adds_its_own_noise(replays):
    """Known failure: a note that does nothing, a reader that tosses a coin. The credit is 0 in the mean with the variance
    1/4 (1 + 1/replays), against 1/4 for the plain score."""
    paid = []
    for score, *again in itertools.product((0.0, 1.0), repeat=1 + replays):
        answers = {Probe(0, 0, r): board([s]) for r, s in enumerate(again)}
        paid.append(LeaveOneOut(replays).advantages(group(board([score])), answers)[0][0])
    assert moments(paid) == pytest.approx((0.0, (1 + 1 / replays) / 4))


def test_a_repeated_message_is_worth_nothing():
    """Known failure: two notes say the same; either alone would do, so each replay is as good as the episode."""
    (credits,) = LeaveOneOut(1).advantages(group(board([1.0, 1.0])), {Probe(0, t): board([1.0, 1.0]) for t in (0, 1)})
    assert credits[:2] == [0.0, 0.0]


def test_a_chat_does_not_pay_the_own_scratchpad():
    """Known failure: A's answer is right exactly when its own first note was, whatever B said. In a replay A still has its note.
    The team reward's gradient is p(1 - p)/2; leave_one_out's is 0."""
    p, left, team = 0.3, 0.0, 0.0
    for (note,), weight in bits(p):
        played = chat(float(note), 0.0)
        credits = LeaveOneOut(1).advantages(group(played), {Probe(0, t): chat(float(note), 0.0) for t in range(3)})
        left += weight * (note - p) * credits[0][0]
        team += weight * (note - p) * played.reward
    assert (left, team) == (0.0, pytest.approx(p * (1 - p) / 2))


# what readers_mean gets wrong on a ring


def test_before_the_mean_is_subtracted_credit_is_mostly_the_problem():
    """Notes that do nothing; readers are right with the chance .1 on a hard problem and .9 on an easy one.

    The mean score of a note's two readers varies by .16 between the problems and by .09/2 within one: 78 % of it is difficulty.
    The mean over the board's notes takes all of that away; left is .09/4, and all of it is the readers' luck.
    """
    raw, paid, by_problem = [], [], []
    for difficulty in (0.1, 0.9):
        on_this = []
        for answers, weight in bits(*[difficulty] * 4):
            (credits,) = readers_mean(group(board([float(a) for a in answers], visible=2)))
            raw.append((statistics.fmean((answers[0], answers[3])), weight / 2))
            paid.append((credits[0], weight / 2))
            on_this.append((credits[0], weight))
        by_problem.append(sum(v * w for v, w in on_this))
    total = sum(w * v * v for v, w in raw) - sum(w * v for v, w in raw) ** 2
    assert total == pytest.approx(0.16 + 0.045)
    assert 0.16 / total == pytest.approx(0.78, abs=0.001)
    assert by_problem == pytest.approx([0.0, 0.0], abs=1e-12)
    assert sum(w * v * v for v, w in paid) == pytest.approx(0.0225)


def test_on_a_ring_the_neighbours_of_a_useful_note_share_its_credit():
    """Only note 0 helps, and its readers, 0 and 3, are right. readers_mean holds its useless neighbours above the equally useless
    note 2; leave_one_out pays note 0 alone."""
    played = group(board([1.0, 0.0, 0.0, 1.0], visible=2))
    assert readers_mean(played)[0][:4] == [0.5, 0.0, -0.5, 0.0]
    replays = {Probe(0, t): board([0.0] * 4 if t == 0 else [1.0, 0.0, 0.0, 1.0], visible=2) for t in range(4)}
    assert LeaveOneOut(1).advantages(played, replays)[0][:4] == [1.0, 0.0, 0.0, 0.0]


def test_where_all_read_all_one_board_pays_its_notes_nothing():
    assert readers_mean(group(board([1.0, 0.0, 1.0, 0.3])))[0][:4] == [0.0] * 4


def test_through_others_counts_as_hearing():
    """A tells B, B tells C; C never heard A. Without A's note C fails."""
    said = [say("A", 0), say("B", 1, heard=(0,)), say("C", 2, final=True, heard=(1,), score=1.0)]
    failing = episode([*said[:2], say("C", 2, final=True, heard=(1,), score=0.0)])
    assert LeaveOneOut(1).advantages(group(episode(said)), {Probe(0, 0): failing, Probe(0, 1): failing}) == [[1.0, 1.0, 0.0]]
