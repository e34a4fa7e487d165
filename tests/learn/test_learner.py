import math
from dataclasses import replace

import pytest
import torch
from learn_builders import TableModel, full_logprobs, lora_learner, ragged_rows, row, tiny, train_config, weights_of
from torch import nn

from coterie.config import FullWeightsConfig, OptimizerConfig
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner, learning_rate, shard
from coterie.types import CoterieError


def test_zero_advantage_rows_never_reach_the_model():
    seen = []
    learner = lora_learner(train_config(tokens_per_micro_batch=1))
    learner.model.get_base_model().model.register_forward_hook(lambda *_: seen.append(1))
    metrics = learner.step(ragged_rows())
    assert len(seen) == metrics["live_rows"] == 6
    assert metrics["rows"] == 8
    assert metrics["tokens"] == sum(len(r.completion_ids) for r in ragged_rows())


@pytest.mark.parametrize("rows", [[row([1], [2, 3], 0.0), row([4], [5], 0.0)], []], ids=["all equal", "no rows"])
def test_nothing_to_learn_is_no_step(rows):
    learner = lora_learner(train_config(schedule="linear", weight_decay=0.1))
    learner.step(ragged_rows())
    before = weights_of(learner)
    moments = {n: learner.optimizer.state[p]["exp_avg"].clone() for n, p in learner.trainable.items()}
    calls = []
    learner.model.get_base_model().model.register_forward_hook(lambda *_: calls.append(1))
    metrics = learner.step(rows)
    assert metrics["skipped"] is True
    assert metrics["live_rows"] == 0
    assert metrics["rows"] == len(rows)
    assert not calls
    for name, parameter in learner.trainable.items():
        assert torch.equal(before[name], parameter)
        assert torch.equal(moments[name], learner.optimizer.state[parameter]["exp_avg"])
    assert (learner.step_index, learner.updates) == (2, 1)
    assert learner.step(ragged_rows())["lr"] == pytest.approx(1e-2 * 4 / 6), "the schedule moved on"


def test_metrics_by_hand():
    """Three tokens with ratios 1, e^0.3 (clipped, A > 0) and e^-0.04; advantages 1, 1, -1; tokens normaliser over 4 tokens."""
    model = TableModel()
    exact = torch.log_softmax(model.table_VV.detach(), dim=-1)
    a, b, c = exact[1, 2].item(), exact[2, 3].item(), exact[4, 5].item()
    rows = [row([1], [2, 3], 1.0, [a, b - 0.3]), row([4], [5], -1.0, [c + 0.04]), row([1], [6], 0.0)]
    metrics = Learner(model, train_config()).step(rows)
    ratios = [1.0, math.exp(0.3), math.exp(-0.04)]
    mean = sum(ratios) / 3
    expected = {
        "skipped": False,
        "rows": 3,
        "live_rows": 2,
        "tokens": 4,
        "live_tokens": 3,
        "loss": -(1.0 + 1.28 - ratios[2]) / 4,
        "ratio_mean": mean,
        "ratio_sd": (sum((r - mean) ** 2 for r in ratios) / 3) ** 0.5,
        "ratio_outside": 1 / 3,
        "clip_fraction": 1 / 3,
        "logprob_gap_max": 0.3,
        "surprise": -(a + b + c) / 3,
        "lr": 1e-2,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected, abs=1e-6)


def test_gradient_is_clipped_and_its_norm_logged_before():
    learner, grads = lora_learner(train_config(max_grad_norm=1e-3)), []
    learner.optimizer.register_step_pre_hook(lambda *_: grads.extend(p.grad.clone() for p in learner.trainable.values()))
    assert learner.step(ragged_rows())["grad_norm"] > 0.01
    assert torch.stack([g.norm() for g in grads]).norm().item() == pytest.approx(1e-3, rel=1e-2)


def test_one_step_is_adamw_by_hand():
    """Bias-corrected Adam's first step is lr * g / (|g| + eps), after the decoupled weight decay."""
    config = train_config(lr=1e-2, weight_decay=0.1, max_grad_norm=1e9, eps=1e-8)
    learner, caught = Learner(attach_adapter(tiny(), FullWeightsConfig(kind="full"), 0), config), {}
    before = weights_of(learner)
    learner.optimizer.register_step_pre_hook(lambda *_: caught.update({n: p.grad.clone() for n, p in learner.trainable.items()}))
    learner.step(ragged_rows())
    for name, parameter in learner.trainable.items():
        want = before[name] * (1 - 1e-3) - 1e-2 * caught[name] / (caught[name].abs() + 1e-8)
        torch.testing.assert_close(parameter.detach(), want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("where", ["sampler", "weights", "advantage"])
def test_a_loss_that_is_not_finite_raises_and_changes_nothing(where):
    learner = lora_learner()
    learner.step(ragged_rows())
    rows = ragged_rows(seed=1)
    if where == "sampler":
        rows[0] = row([1, 2], [3, 4], -1.0, [-1.0, -400.0])
    elif where == "advantage":
        rows[0] = row([1, 2], [3, 4], math.nan)
    else:
        with torch.no_grad():
            next(iter(learner.trainable.values()))[0, 0] = math.inf
    before = weights_of(learner)
    with pytest.raises(CoterieError, match=r"step 1: the loss is .*train\.optimizer\.lr"):
        learner.step(rows)
    assert all(torch.equal(before[n], p) and p.grad is None for n, p in learner.trainable.items())
    assert (learner.step_index, learner.updates) == (1, 1)


def test_a_gradient_that_is_not_finite_raises():
    learner = lora_learner()
    parameter = learner.trainable[next(n for n in learner.trainable if "lora_B" in n)]
    parameter.register_hook(lambda gradient: gradient * math.inf)
    with pytest.raises(CoterieError, match="gradient norm is"):
        learner.step(ragged_rows())


def test_schedule_by_hand():
    linear = OptimizerConfig(lr=1.0, schedule="linear", warmup_steps=2)
    assert [learning_rate(linear, s, 6) for s in range(7)] == [0.5, 1.0, 1.0, 0.75, 0.5, 0.25, 0.0]
    floor = OptimizerConfig(lr=1.0, schedule="linear", final_fraction=0.1)
    assert [learning_rate(floor, s, 2) for s in range(4)] == pytest.approx([1.0, 0.55, 0.1, 0.1])
    constant = OptimizerConfig(lr=1.0, schedule="constant", warmup_steps=1)
    assert [learning_rate(constant, s, 3) for s in range(5)] == [1.0] * 5
    assert learning_rate(linear, 0, 0) == 0.5


def test_schedule_is_transformers_linear():
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=3.0)
    theirs = get_linear_schedule_with_warmup(optimizer, 0, 80)
    for step in range(80):
        assert learning_rate(OptimizerConfig(lr=3.0), step, 80) == pytest.approx(theirs.get_last_lr()[0])
        optimizer.step()
        theirs.step()


def test_sampler_and_learner_agree_on_policy():
    learner = lora_learner()
    learner.step(ragged_rows())
    rows = [row(r.prompt_ids, r.completion_ids, r.advantage, full_logprobs(learner.model, r).tolist()) for r in ragged_rows(seed=2)]
    metrics = learner.step(rows)
    assert metrics["logprob_gap_max"] < 2e-5
    assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["ratio_outside"] == metrics["clip_fraction"] == 0.0


def test_dropout_comes_from_the_named_stream_and_leaves_the_rest_alone():
    results = []
    for disturbance in (1, 2):
        learner = lora_learner(dropout=0.5, seed=3)
        torch.manual_seed(disturbance)
        expected = torch.get_rng_state()
        learner.step(ragged_rows())
        assert torch.equal(torch.get_rng_state(), expected)
        assert not any(m.training for m in learner.model.modules()), "the sampler finds the model in eval mode"
        results.append(weights_of(learner))
    assert all(torch.equal(results[0][n], results[1][n]) for n in results[0])
    other = lora_learner(dropout=0.5, seed=3)
    other.step_index = 1
    other.step(ragged_rows())
    assert not all(torch.equal(results[0][n], p) for n, p in other.trainable.items()), "each step has its own"


def test_the_models_own_dropout_is_off():
    model = tiny(attention_dropout=0.9)
    learner = Learner(attach_adapter(model, FullWeightsConfig(kind="full"), 0), train_config())
    model.train()
    plain = Learner(attach_adapter(tiny(), FullWeightsConfig(kind="full"), 0), train_config())
    assert learner.step(ragged_rows()) == plain.step(ragged_rows())


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_gradient_checkpointing_recomputes_and_changes_nothing(dropout):
    calls, results = [], []
    for recompute in (False, True):
        config = train_config().model_copy(update={"gradient_checkpointing": recompute})
        learner = lora_learner(config, dropout=dropout)
        mlp = learner.model.get_base_model().model.layers[0].mlp
        calls.append(0)

        def count(*_):
            calls[-1] += 1

        mlp.register_forward_pre_hook(count)  # recomputation stops as soon as it can, before later hooks
        results.append((learner.step(ragged_rows()), weights_of(learner)))
        assert not any(m.training or getattr(m, "gradient_checkpointing", False) for m in learner.model.modules())
    assert calls == [1, 2]
    assert results[0][0] == pytest.approx(results[1][0])
    assert all(torch.allclose(results[0][1][n], results[1][1][n], atol=1e-6) for n in results[0][1])


def test_repeats_are_bit_identical():
    runs = []
    for _ in range(2):
        learner = lora_learner()
        runs.append(([learner.step(ragged_rows(seed=s)) for s in range(3)], weights_of(learner)))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(runs[0][1][n], runs[1][1][n]) for n in runs[0][1])


def test_learning_raises_the_probability_of_what_is_paid():
    model = TableModel()
    learner = Learner(model, train_config(lr=0.1))
    for _ in range(20):
        logprobs = torch.log_softmax(model.table_VV.detach(), -1)[1]
        learner.step([row([1], [2], 1.0, [logprobs[2].item()]), row([1], [3], -1.0, [logprobs[3].item()])])
    after = torch.log_softmax(model.table_VV.detach(), -1)[1]
    assert after[2] - after[3] > 3.0


def test_nothing_trainable_is_refused():
    with pytest.raises(CoterieError, match=r"model\.adapter"):
        Learner(tiny().requires_grad_(False), train_config())


def test_shares_are_a_partition_of_like_size():
    lengths = [5, 9, 1, 7, 7, 2, 8]
    shares = [shard(lengths, rank, 2) for rank in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(7))
    assert abs(sum(lengths[i] for i in shares[0]) - sum(lengths[i] for i in shares[1])) <= 9
    assert shard([3], 1, 2) == []


def test_gradient_checkpointing_where_it_cannot_work_is_refused():
    with pytest.raises(CoterieError, match=r"train\.gradient_checkpointing"):
        Learner(TableModel(), train_config().model_copy(update={"gradient_checkpointing": True}))


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("budget", [1, 16384])
def test_logprobs_of_text_that_was_not_sampled(packed, budget):
    """Of each row, in the order of the rows, whatever the micro-batches; by the model's own logits. And nothing is left behind."""
    config = train_config(tokens_per_micro_batch=budget).model_copy(update={"gradient_checkpointing": packed})
    learner = Learner(lora_learner(config).model, config, packed=packed)
    learner.step(ragged_rows())
    found = learner.logprobs(ragged_rows())
    for one, logprobs in zip(ragged_rows(), found, strict=True):
        assert logprobs == pytest.approx(full_logprobs(learner.model, one).tolist(), abs=2e-5)
    assert all(p.grad is None for p in learner.model.parameters())
    assert learner.logprobs([]) == []


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("budget", [40, 16384])
def test_a_completion_that_nobody_sampled_is_learned_from_at_a_ratio_of_one(packed, budget):
    """The same step as with the log-probabilities of now, which another forward pass gives; and the sampled rows beside them are
    corrected as before. Its surprise is told apart."""
    config = train_config(tokens_per_micro_batch=budget)
    given, asked = (Learner(lora_learner(config).model, config, packed=packed) for _ in range(2))
    for learner in (given, asked):
        learner.step(ragged_rows())
    unsampled = [i for i, one in enumerate(ragged_rows()) if one.advantage][::2]
    found = given.logprobs(ragged_rows())
    rows = [replace(one, logprobs=found[i]) if i in unsampled else one for i, one in enumerate(ragged_rows())]
    before = given.step(rows)
    after = asked.step([replace(one, logprobs=None) if i in unsampled else one for i, one in enumerate(rows)])
    surprise = [-x for i in unsampled for x in found[i]]
    assert after.pop("unsampled_surprise") == pytest.approx(sum(surprise) / len(surprise), rel=1e-5)
    assert "unsampled_surprise" not in before
    assert after == pytest.approx(before, rel=1e-5, abs=1e-7)
    assert before["ratio_sd"] > 1e-3, "the other rows have ratios of their own"
    for name, value in weights_of(given).items():
        assert torch.allclose(value, weights_of(asked)[name], rtol=1e-5, atol=1e-8)
