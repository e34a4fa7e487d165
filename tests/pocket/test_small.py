"""The small built-in model: the same words as the pocket model, a quarter of its weights, and known by its name."""

import json

from transformers import AutoModelForCausalLM, AutoTokenizer

from coterie.assemble import write_script
from coterie.config import RunConfig
from coterie.pocket import MODELS
from coterie.pocket.rates import measure
from coterie.protocols.solo import WORDINGS
from coterie.tasks.pocket import pocket_tasks
from tests.swarm.members import config

SMALL = MODELS["pocket-small"]


def test_it_speaks_the_pocket_models_form_and_knows_its_problems():
    model = AutoModelForCausalLM.from_pretrained(SMALL, local_files_only=True).eval()
    tokenizer, pocket = (AutoTokenizer.from_pretrained(MODELS[name]) for name in ("pocket-small", "pocket"))
    assert tokenizer.get_vocab() == pocket.get_vocab()
    assert tokenizer.chat_template == pocket.chat_template
    assert measure(model, tokenizer, pocket_tasks("held_out", 60, 5), "solo").mean >= 0.85
    parameters = sum(p.numel() for p in model.parameters())
    summary = json.loads((SMALL / "pretrain.json").read_text())
    card = (SMALL / "README.md").read_text()
    assert f"{parameters:,}" in card
    assert parameters == summary["parameters"]
    for rate in summary["rates"].values():
        assert f"{rate['mean']:.3f} | {rate['error']:.3f}" in card


def test_its_name_is_enough_for_a_configuration():
    written = config().model_dump(mode="json", exclude_none=True)
    script = write_script(RunConfig.model_validate({**written, "model": {**written["model"], "path": "pocket-small"}}))
    assert script.protocol.wording is WORDINGS["pocket"]
