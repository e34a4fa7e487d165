import warnings

import pytest
import torch
from learn_builders import VOCABULARY, lora_learner, ragged_rows, tiny, train_config, weights_of

from coterie.config import FullWeightsConfig, LoraConfig
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner
from coterie.types import CoterieError

PROBE = torch.arange(VOCABULARY)[None]


def trainable(model):
    return {name: p for name, p in model.named_parameters() if p.requires_grad}


def test_the_start_depends_on_the_seed_alone():
    made = []
    for disturbance in (1, 2):
        torch.manual_seed(disturbance)
        made.append(trainable(attach_adapter(tiny(), LoraConfig(rank=4), 7)))
    other = trainable(attach_adapter(tiny(), LoraConfig(rank=4), 8))
    assert made[0].keys() == made[1].keys() == other.keys()
    for name in other:
        assert torch.equal(made[0][name], made[1][name])
        assert torch.equal(made[0][name], other[name]) == ("lora_B" in name)


def test_the_global_random_state_is_left_alone():
    model = tiny()
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    attach_adapter(model, LoraConfig(rank=4), 7)
    assert torch.equal(torch.rand(4), expected)


def test_a_layers_start_does_not_depend_on_which_others_have_an_adapter():
    all_layers = trainable(attach_adapter(tiny(), LoraConfig(rank=4), 7))
    some = trainable(attach_adapter(tiny(), LoraConfig(rank=4, targets=("v_proj",)), 7))
    assert some
    assert all(torch.equal(all_layers[name], p) for name, p in some.items())


def test_a_is_uniform_as_in_peft():
    made = trainable(attach_adapter(tiny(), LoraConfig(), 0))
    values = torch.cat([p.flatten() * p.shape[1] ** 0.5 for name, p in made.items() if "lora_A" in name])
    assert values.abs().max() <= 1.0
    assert values.mean().abs() < 0.02
    assert values.std().item() == pytest.approx(3**-0.5, rel=0.02)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adapter_is_fp32_and_the_base_is_frozen_as_it_was(dtype):
    base = {name: p.detach().clone() for name, p in tiny(dtype=dtype).named_parameters()}
    learner = lora_learner(dtype=dtype)
    learner.step(ragged_rows())
    learner.step(ragged_rows(seed=1))
    assert learner.trainable
    assert all("lora_" in name and p.dtype == torch.float32 for name, p in learner.trainable.items())
    frozen = {n: p for n, p in learner.model.get_base_model().named_parameters() if "lora_" not in n}
    assert len(frozen) == len(base)
    for name, parameter in frozen.items():
        assert not parameter.requires_grad
        assert parameter.dtype == dtype
        assert torch.equal(parameter, base[name.replace(".base_layer", "")])


def test_first_step_moves_b_and_the_second_moves_a():
    """B starts at 0, so A has no gradient in the first step (PEFT #2421: an A that never left its start)."""
    learner = lora_learner(train_config(lr=1e-5), dtype=torch.bfloat16)
    states = [weights_of(learner)]
    for seed in (0, 1):
        learner.step(ragged_rows(seed=seed))
        states.append(weights_of(learner))

    def moved(half, before, after):
        return {torch.equal(states[before][n], states[after][n]) for n in states[0] if half in n}

    assert moved("lora_B", 0, 1) == {False}
    assert moved("lora_A", 0, 1) == {True}
    assert moved("lora_A", 1, 2) == {False}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_disable_adapter_is_the_base_exactly(dtype):
    learner = lora_learner(dtype=dtype)
    base = tiny(dtype=dtype)(PROBE).logits
    assert torch.equal(learner.model(PROBE).logits, base), "B is 0"
    for seed in range(3):
        learner.step(ragged_rows(seed=seed))
    assert not torch.equal(learner.model(PROBE).logits, base)
    with learner.model.disable_adapter():
        assert torch.equal(learner.model(PROBE).logits, base)


def test_full_weights_are_all_trainable_in_fp32():
    model = attach_adapter(tiny(dtype=torch.bfloat16), FullWeightsConfig(kind="full"), 0)
    assert all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    learner = Learner(model, train_config())
    before = weights_of(learner)
    assert learner.step(ragged_rows())["grad_norm"] > 0
    assert not any(torch.equal(before[name], p) for name, p in learner.trainable.items())


@pytest.mark.parametrize("targets", [("q_proj", "c_attn"), ("c_attn",), ("embed_tokens",), ("self_attn",)])
def test_a_target_that_is_no_linear_layer_is_refused(targets):
    with pytest.raises(CoterieError, match=r"model\.adapter\.targets: .*choose from .*q_proj"):
        attach_adapter(tiny(), LoraConfig(targets=targets), 0)


def test_the_head_may_have_an_adapter():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = attach_adapter(tiny(), LoraConfig(rank=4, targets=("lm_head", "q_proj")), 0)
    learner = Learner(model, train_config())
    before = weights_of(learner)
    learner.step(ragged_rows())
    head = next(n for n in before if "lm_head.lora_B" in n)
    assert not torch.equal(before[head], learner.trainable[head])


def test_names_are_stable():
    names = list(trainable(attach_adapter(tiny(), LoraConfig(rank=4, targets=("q_proj",)), 0)))
    assert names[:2] == [
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight",
    ]
