"""The lane of Triton kernels and captured graphs against transformers: same requests, same messages, same log-probabilities.

Runs on a CUDA device; on a machine without one also under Triton's interpreter, where triton is installed:
`TRITON_INTERPRET=1 pytest -m gpu tests/engines/test_cuda.py` (minutes; kernels on the CPU, no graphs).
"""

import importlib.util
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model

from coterie.engines.base import Request, Sampler
from coterie.engines.hf import HFEngine
from coterie.engines.local import LocalEngine
from coterie.engines.players import Players
from coterie.types import BASE, POLICY, CoterieError
from tests.engines.tiny import CONFIGS, run, tiny_model

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a CUDA device, or Triton's interpreter"),
]
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SAMPLER = Sampler()


def adapted(name: str, others: tuple[str, ...] = ()):
    """A tiny model with adapters whose both halves are away from zero."""
    model = get_peft_model(tiny_model(name), LoraConfig(r=4, lora_alpha=8, target_modules=TARGETS))
    for rank, other in enumerate(others, 2):
        model.add_adapter(other, LoraConfig(r=rank, lora_alpha=8, target_modules=TARGETS[: 3 + rank]))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.to(DEVICE)


def requests(count: int, seed: int = 0, sampler: Sampler = SAMPLER, players=(POLICY, BASE), caps: int = 30) -> list[Request]:
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    prompts = [tuple(rng.randrange(2, 97) for _ in range(rng.randint(1, 90))) for _ in range(max(1, count // 2))]
    return [
        Request(rng.choice(prompts), rng.randint(1, caps), rng.choice(players), sampler, noise.random(caps).tolist())
        for _ in range(count)
    ]


def engines(model, together: bool = False, **options):
    players = Players(model)
    arguments = {"stop_ids": (1,), "context_length": 256, **options}
    return LocalEngine(players, **arguments, kernels=True, together=together), HFEngine(players, **arguments)


def agree(ours: list, theirs: list) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.ids == other.ids
        assert one.stop == other.stop
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_it_samples_what_transformers_samples(name):
    local, reference = engines(adapted(name), slots=5)
    agree(run(local, requests(16)), run(reference, requests(16)))


@pytest.mark.parametrize("sampler", [Sampler(0.7), Sampler(0.0), Sampler(top_k=3), Sampler(0.8, top_p=0.6)])
def test_samplers(sampler):
    local, reference = engines(adapted("qwen2"))
    asked = [*requests(6, 1, sampler), *requests(3, 2)]  # side by side with others
    agree(run(local, asked), run(reference, asked))


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_a_message_does_not_depend_on_its_batch(slots):
    asked, model = requests(10, seed=3), adapted("qwen2")
    agree(run(engines(model, slots=slots)[0], asked), [run(engines(model)[0], [request])[0] for request in asked])


def test_requests_that_join_late_get_the_same_messages():
    model, asked = adapted("llama"), requests(12, seed=4)
    engine = engines(model, slots=4)[0]
    done, tickets = {}, []
    for request in asked:
        tickets.append(engine.submit(request))
        done.update(engine.step())
    while len(done) < len(tickets):
        done.update(engine.step())
    agree([done[t] for t in tickets], run(engines(model)[1], asked))


def test_memory_grows_while_messages_are_decoded():
    """A longer prompt, a larger cap and more sequences than there was room for; those in flight keep what they have."""
    model = adapted("qwen2")
    engine, reference = engines(model, context_length=1200)
    early = [Request((3, 4, 5), 40, POLICY, Sampler(), [0.3 + 0.01 * i] * 40) for i in range(2)]
    late = [
        Request(tuple(range(2, 97)) * 7, 200, POLICY, Sampler(), np.random.default_rng(i).random(200).tolist()) for i in range(3)
    ]
    tickets = [engine.submit(r) for r in early]
    done = dict(engine.step())
    tickets += [engine.submit(r) for r in late]
    while len(done) < len(tickets):
        done.update(engine.step())
    agree([done[t] for t in tickets], run(reference, early + late))


def test_refresh_follows_the_adapter_in_the_same_memory():
    model = adapted("qwen2")
    engine, reference = engines(model)
    asked = requests(4, 5)
    before = run(engine, asked)
    addresses = [layer.qkv.data_ptr() for layer in engine._lanes[POLICY].forward.decoder.layers]
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.mul_(-2.0)
    agree(run(engine, asked), before)  # the engine keeps to the weights it was given until it is told
    engine.refresh(1)
    after = run(engine, asked)
    agree(after, run(reference, asked))
    assert [a.logprobs for a in after] != [b.logprobs for b in before]
    assert [layer.qkv.data_ptr() for layer in engine._lanes[POLICY].forward.decoder.layers] == addresses


def test_full_weights_keep_a_frozen_base():
    model = tiny_model("llama").to(DEVICE)
    engine, reference = engines(model)
    asked = requests(6, 6)
    agree(run(engine, asked), run(reference, asked))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02)
    engine.refresh(1)
    agree(run(engine, asked), run(reference, asked))


def test_weights_may_not_change_while_messages_are_decoded():
    engine, _ = engines(adapted("qwen2"))
    engine.submit(Request((3, 4), 30, POLICY, Sampler(), [0.1] * 30))
    with pytest.raises(RuntimeError, match="while messages were being decoded"):
        engine.refresh(1)


@pytest.mark.parametrize("name", ["qwen2", "qwen3"])
@pytest.mark.parametrize("together", [False, True])
def test_players_with_adapters_of_their_own(name, together):
    model = adapted(name, ("left", "right"))
    local, reference = engines(model, together)
    asked = requests(100 if DEVICE == "cuda" else 8, 7, players=(POLICY, BASE, "left", "right"))
    agree(run(local, asked), run(reference, asked))
    assert len({run(local, [replace(asked[0], player=p)])[0].logprobs for p in (POLICY, BASE, "left", "right")}) == 4
    with pytest.raises(CoterieError, match="no player is named nobody; this engine plays policy, base, left, right"):
        local.submit(replace(asked[0], player="nobody"))


@pytest.mark.skipif(DEVICE == "cpu", reason="bf16 on the card")
def test_half_precision_agrees_with_transformers_to_rounding(record_property):
    """bf16: the learner's ratio of probabilities for the sampled ids stays near one."""
    model = adapted("qwen2").to(torch.bfloat16)
    local, _ = engines(model)
    differences = []
    for request, said in zip(asked := requests(64, 8), run(local, asked), strict=True):
        with Players(model).as_module(request.player) as module, torch.no_grad():
            logits = module(torch.tensor([[*request.prompt_ids, *said.ids]], device=DEVICE)).logits[0].float()
        scores = torch.log_softmax(logits, -1)[len(request.prompt_ids) - 1 : -1].cpu()
        differences += (scores[torch.arange(len(said.ids)), torch.tensor(said.ids)] - torch.tensor(said.logprobs)).tolist()
    ratio = np.exp(differences)
    record_property("mean", float(np.mean(ratio)))
    assert abs(np.mean(ratio) - 1) < 0.02
