"""The local engine against transformers: same requests, same messages, same log-probabilities."""

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


def adapted(name: str, seed: int = 0):
    """A tiny model with an adapter whose both halves are away from zero."""
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    model = get_peft_model(tiny_model(name, seed), LoraConfig(r=4, lora_alpha=8, target_modules=targets))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model


SAMPLER = Sampler()


def requests(count: int, seed: int = 0, sampler: Sampler = SAMPLER) -> list[Request]:
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    prompts = [tuple(rng.randrange(2, 97) for _ in range(rng.randint(1, 40))) for _ in range(max(1, count // 2))]
    return [
        Request(rng.choice(prompts), rng.randint(1, 30), rng.choice([POLICY, BASE]), sampler, noise.random(30).tolist())
        for _ in range(count)
    ]


def engines(model, **options):
    players = Players(model)
    arguments = {"stop_ids": (1,), "context_length": 256, **options}
    return LocalEngine(players, **arguments), HFEngine(players, **arguments)


@pytest.mark.parametrize("name", CONFIGS)
def test_local_engine_samples_what_transformers_samples(name):
    local, reference = engines(adapted(name), slots=5)
    for ours, theirs in zip(run(local, requests(24)), run(reference, requests(24)), strict=True):
        assert ours.ids == theirs.ids
        assert ours.stop == theirs.stop
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)


@pytest.mark.parametrize("slots", [1, 3, 64])
def test_a_message_does_not_depend_on_its_batch(slots):
    asked = requests(20, seed=3)
    model = adapted("qwen2")
    together = run(engines(model, slots=slots)[0], asked)
    alone = [run(engines(model)[0], [request])[0] for request in asked]
    for a, b in zip(together, alone, strict=True):
        assert a.ids == b.ids
        np.testing.assert_allclose(a.logprobs, b.logprobs, atol=1e-5)


def test_requests_that_join_late_get_the_same_messages():
    model = adapted("llama")
    asked = requests(12, seed=4)
    expected = run(engines(model)[0], asked)
    engine = engines(model, slots=4)[0]
    done, tickets = {}, []
    for request in asked:
        tickets.append(engine.submit(request))
        done.update(engine.step())
    while len(done) < len(tickets):
        done.update(engine.step())
    assert [done[t].ids for t in tickets] == [e.ids for e in expected]


def test_log_probabilities_are_those_of_the_forward_pass():
    """An oracle without any sampling code: log-softmax of the model's logits over prompt and message, over the temperature."""
    model = adapted("qwen3")
    for request, completion in zip(asked := requests(8, sampler=Sampler(0.7)), run(engines(model)[0], asked), strict=True):
        with Players(model).as_module(request.player) as module, torch.no_grad():
            logits = module(torch.tensor([[*request.prompt_ids, *completion.ids]])).logits[0]
        scores = torch.log_softmax(logits / 0.7, -1)[len(request.prompt_ids) - 1 : -1]
        expected = scores[torch.arange(len(completion.ids)), torch.tensor(completion.ids)]
        np.testing.assert_allclose(completion.logprobs, expected.numpy(), atol=1e-4)


def test_base_and_policy_differ_and_refresh_follows_the_adapter():
    model = adapted("qwen2")
    engine, _ = engines(model)
    prompt, noise = (5, 6, 7, 8), [0.5] * 20
    ask = lambda player: run(engine, [Request(prompt, 20, player, Sampler(), noise)])[0].logprobs  # noqa: E731
    before, base = ask(POLICY), ask(BASE)
    assert before != base
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.mul_(2.0)
    assert ask(POLICY) == before  # the engine keeps to the weights it was given until it is told
    engine.refresh(1)
    fresh, _ = engines(model)
    after = ask(POLICY)
    assert after != before
    assert after == run(fresh, [Request(prompt, 20, POLICY, Sampler(), noise)])[0].logprobs
    assert ask(BASE) == base
    assert engine.policy_version == 1


def test_weights_may_not_change_while_messages_are_decoded():
    for engine in engines(adapted("qwen2")):
        engine.submit(Request((3, 4), 30, POLICY, Sampler(), [0.1] * 30))
        with pytest.raises(RuntimeError, match="while messages were being decoded"):
            engine.refresh(1)


def test_full_weights_keep_a_frozen_base():
    model = tiny_model("llama")
    engine, _ = engines(model)
    asked = [Request((3, 4, 5), 10, BASE, Sampler(), [0.3] * 10)]
    before = run(engine, asked)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1)
    engine.refresh(1)
    assert run(engine, asked) == before


def test_what_does_not_fit_the_context_is_refused():
    for engine in engines(adapted("qwen2"), context_length=16):
        with pytest.raises(CoterieError, match="prompt of 10 tokens and a cap of 7 do not fit the model's context of 16"):
            engine.submit(Request(tuple(range(2, 12)), 7, POLICY, Sampler(), [0.1] * 7))


def test_greedy_takes_the_likeliest_token():
    model = adapted("qwen2")
    completion = run(engines(model)[0], [Request((3, 4, 5), 8, POLICY, Sampler(temperature=0.0), [0.99] * 8)])[0]
    with torch.no_grad():
        logits = model(torch.tensor([[3, 4, 5, *completion.ids]])).logits[0, 2:-1]
    assert list(completion.ids) == logits.argmax(-1).tolist()


def test_players_may_be_further_adapters_of_the_model():
    model = adapted("qwen2")
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj", "up_proj"], init_lora_weights=False))
    trained = {key for key, parameter in model.named_parameters() if parameter.requires_grad}
    local, reference = engines(model)
    asked = [replace(request, player=player) for request in requests(4) for player in (POLICY, "other", BASE)]
    for ours, theirs in zip(run(local, asked), run(reference, asked), strict=True):
        assert ours.ids == theirs.ids
        np.testing.assert_allclose(ours.logprobs, theirs.logprobs, atol=1e-4)
    assert {key for key, parameter in model.named_parameters() if parameter.requires_grad} == trained
    for engine in (local, reference):
        with pytest.raises(CoterieError, match="no player is named nobody; this engine plays policy, base, other"):
            run(engine, [replace(asked[0], player="nobody")])


def test_the_order_of_completions_does_not_depend_on_who_played_before():
    """A run that was resumed opens its lanes in another order than one that never stopped; both must go on alike."""

    def order(engine):
        tickets = [engine.submit(request) for request in requests(24, seed=5)]
        done = []
        while len(done) < len(tickets):
            done += [tickets.index(ticket) for ticket, _ in engine.step()]
        return done

    model = adapted("llama")
    orders = []
    for first in (POLICY, BASE):
        engine = engines(model)[0]
        run(engine, [replace(requests(1)[0], player=first)])
        engine.refresh(0)
        orders.append(order(engine))
    assert orders[0] == orders[1]


def test_an_adapter_that_is_more_than_a_low_rank_update_is_refused():
    model = get_peft_model(tiny_model("qwen2"), LoraConfig(r=2, target_modules=["q_proj"], use_dora=True))
    with pytest.raises(CoterieError, match="adapter default uses use_dora"):
        engines(model)
