"""Finished runs that were never trained: each adapter is noise, far from the base, so that what players say tells them apart."""

from pathlib import Path

import torch

from coterie.assemble import assemble
from coterie.experiment import plan
from coterie.learn import checkpoint
from coterie.learn.learner import Learner
from coterie.recipe import load_recipe
from coterie.runs import RunFolder
from tests.end_to_end.conftest import SMALL


def strangers(out: Path, seeds=(17, 18), *sets: str) -> list[RunFolder]:
    sets = (*SMALL, "evaluate.cross_play=false", "evaluate.before=false", "evaluate.episodes=1", *sets)
    made = plan(load_recipe("talk-to-solve"), profile="pocket", arms=("chat",), seeds=seeds, steps=2, sets=sets, out=out)
    for job in made.jobs:
        job.folder.create(job.config)
        stage = assemble(job.config)
        learner = Learner(stage.model, job.config.train, seed=job.config.seed)
        generator = torch.Generator().manual_seed(job.config.seed)
        with torch.no_grad():
            for parameter in learner.trainable.values():
                parameter.copy_(0.25 * torch.randn(parameter.shape, generator=generator))
        checkpoint.save(job.folder.checkpoints, 2, learner, {"step": 2}, keep=1)
        job.folder.result_file.write_text("{}")
    return [job.folder for job in made.jobs]
