"""The vote against the standard library's modes."""

import statistics

from hypothesis import given
from hypothesis import strategies as st

from coterie.protocols.votes import mean, vote, vote_score
from tests.protocols.scripted import note, number


@given(st.lists(st.sampled_from(["1", "2", "3", "none"]), max_size=9))
def test_the_first_message_with_the_most_common_answer_wins(texts):
    """`multimode` lists modes in the order in which they were first seen. Breaks when the last of a tie wins, or silence votes."""
    messages = [note(f"seat {i}", i, text) for i, text in enumerate(texts)]
    modes = statistics.multimode([text for text in texts if text != "none"])
    winner = vote(messages, number)
    assert winner is (messages[texts.index(modes[0])] if modes else None)


def test_nobody_answers_scores_zero():
    assert vote_score([note("a", 0, "well"), note("b", 1, "")], number) == 0.0
    assert mean([]) is None
