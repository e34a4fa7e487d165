"""Slow: the pocket copies learn to talk, and with the channel cut they do not."""

import pytest

from coterie.experiment import plan
from coterie.recipe import load_recipe
from coterie.records import read_json, read_lines
from coterie.worker import play_run


@pytest.mark.slow
@pytest.mark.parametrize(("arm", "low", "high"), [("chat", 0.6, 1.0), ("off", 0.0, 0.1)])
def test_reward_rises_only_where_messages_arrive(tmp_path, arm, low, high):
    """Fifty steps of the recipe's own settings, on fewer held-out tasks; the whole recipe reaches 0.95 and more with messages."""
    sets = ("tasks.held_out=100", "evaluate.cross_play=false")
    experiment = plan(load_recipe("talk-to-solve"), arms=[arm], seeds=[1], steps=50, sets=sets, out=tmp_path)
    job = experiment.jobs[-1]
    job.folder.create(job.config)
    play_run(job.folder)
    rewards = [metrics["reward"] for metrics in read_lines(job.folder.metrics_file)]
    assert sum(rewards[:5]) / 5 < 0.35
    assert low <= sum(rewards[-5:]) / 5 <= high
    assert low <= read_json(job.folder.result_file)["score"] <= high
