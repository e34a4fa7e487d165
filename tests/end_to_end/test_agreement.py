"""What the sampler said a token's log-probability was is what the learner computes for it."""

import os

import pytest
import torch

from coterie.assemble import assemble
from coterie.learn.learner import Learner
from coterie.learn.loss import completion_logprobs
from coterie.learn.rows import collate, rows_from_group
from coterie.train import draw_episodes, tasks_of_step


def largest_gap(stage, rows):
    with torch.no_grad():
        batch = collate(rows, [1.0] * len(rows), device=next(stage.model.parameters()).device)
        return (completion_logprobs(stage.model, batch) - batch.sampler_logprob_N).abs().max().item()


def play(stage, step):
    tasks = tasks_of_step(stage.tasks.train, stage.config.seed, step, stage.config.train.tasks_per_step)
    groups = draw_episodes(stage, tasks, step).groups(stage.draw)
    return [row for group in groups for row in rows_from_group(group, stage.credit.advantages(group, {}))]


def check(stage):
    """Before any step, after an update that is forced to be large, and not with the adapter that was there before."""
    learner = Learner(stage.model, stage.config.train, seed=0)
    for version in range(3):
        rows = play(stage, version)
        assert all(row.policy_version == version for row in rows)
        assert largest_gap(stage, rows) < 1e-4
        learner.step([_with_advantage(row, index) for index, row in enumerate(rows)])
        assert largest_gap(stage, rows) > 1e-4, "the update changed nothing, so agreement after it would prove nothing"
        stage.engine.refresh(version + 1)


def _with_advantage(row, index):
    from dataclasses import replace

    return replace(row, advantage=1.0 if index % 2 else -1.0)


@pytest.mark.parametrize("engine", ["local", "hf"])
def test_pocket(small_plan, tmp_path, engine):
    check(assemble(small_plan(tmp_path, f"engine.kind={engine}", "train.optimizer.warmup_steps=0").jobs[-1].config))


@pytest.mark.slow
@pytest.mark.skipif("COTERIE_SMOLLM2" not in os.environ, reason="COTERIE_SMOLLM2 names no folder with SmolLM2-135M-Instruct")
def test_smollm2(small_plan, tmp_path):
    sets = (
        f"model.path={os.environ['COTERIE_SMOLLM2']}",
        "train.tasks_per_step=1",
        "draw.episodes=2",
        "train.optimizer.warmup_steps=0",
    )
    check(assemble(small_plan(tmp_path, *sets).jobs[-1].config))
