"""How rows are cut into micro-batches, by choice or by lack of memory, changes nothing."""

import pytest
import torch
from learn_builders import lora_learner, ragged_rows, row, train_config

from coterie.config import LossConfig
from coterie.learn import learner as learner_module
from coterie.types import CoterieError

MODES = [LossConfig(), LossConfig(normaliser="live_tokens"), LossConfig(normaliser="sequences")]
MODES.append(LossConfig(normaliser="constant", constant_length=8))
SAME_LENGTHS = [row([1, 2, i], [3, i, 5][: 1 + i % 3], (0.0, 1.0, -0.5, 0.25)[i % 4], [-3.0] * (1 + i % 3)) for i in range(8)]


def gradient_after(config, rows):
    """Loss and gradient of one step, caught before the optimiser."""
    caught = {}
    learner = lora_learner(config)
    with torch.no_grad():
        for name, parameter in learner.trainable.items():
            if "lora_B" in name:
                parameter.fill_(0.05)  # so that A has a gradient too
    learner.optimizer.register_step_pre_hook(
        lambda *_: caught.update({n: p.grad.detach().clone() for n, p in learner.trainable.items()}) or None
    )
    metrics = learner.step(rows)
    return metrics, caught


@pytest.mark.parametrize("loss", MODES, ids=lambda c: c.normaliser)
@pytest.mark.parametrize("rows", [ragged_rows(), SAME_LENGTHS], ids=["ragged", "short"])
def test_micro_batching_changes_neither_loss_nor_gradient(loss, rows):
    """All rows at once, each alone, and a few at a time; two of the eight rows have a zero advantage."""
    whole, expected = gradient_after(train_config(loss=loss, max_grad_norm=1e9), rows)
    assert whole["live_rows"] == 6
    for budget in (1, 2 * max(len(r.prompt_ids) + len(r.completion_ids) for r in rows)):
        cut, gradient = gradient_after(train_config(loss=loss, max_grad_norm=1e9, tokens_per_micro_batch=budget), rows)
        assert cut["loss"] == pytest.approx(whole["loss"], abs=1e-6)
        for name in expected:
            scale = max(1.0, expected[name].abs().max().item())
            assert (gradient[name] - expected[name]).abs().max() < 1e-6 * scale
        for key in whole.keys() - {"micro_batch_tokens"}:
            assert cut[key] == pytest.approx(whole[key], rel=1e-5, abs=1e-5), key


def test_order_of_rows_does_not_matter():
    rows = ragged_rows()
    whole, expected = gradient_after(train_config(), rows)
    turned, gradient = gradient_after(train_config(), rows[::-1])
    assert turned["loss"] == pytest.approx(whole["loss"], abs=1e-6)
    assert all(torch.allclose(gradient[n], expected[n], atol=1e-6) for n in expected)


def fail_above(monkeypatch, limit, calls):
    """A memory that holds `limit` padded tokens."""
    real = learner_module.completion_logprobs

    def scarce(model, batch):
        calls.append(tuple(batch.ids_BT.shape))
        if batch.ids_BT.numel() > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, batch)

    monkeypatch.setattr(learner_module, "completion_logprobs", scarce)


def test_out_of_memory_halves_the_micro_batch_and_starts_over(monkeypatch):
    rows, calls = ragged_rows(16), []
    config = train_config(tokens_per_micro_batch=160, max_grad_norm=1e9)
    whole, expected = gradient_after(config, rows)
    # the second micro-batch fails: the first has already left its gradient, which must not be counted twice
    order, real = [], learner_module.completion_logprobs

    def second_fails(model, batch):
        order.append(batch.ids_BT.numel())
        if len(order) == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(model, batch)

    monkeypatch.setattr(learner_module, "completion_logprobs", second_fails)
    cut, gradient = gradient_after(config, rows)
    assert cut["micro_batch_tokens"] == 80
    assert len(order) > 3
    assert cut["loss"] == pytest.approx(whole["loss"], abs=1e-6)
    assert cut["live_tokens"] == whole["live_tokens"]
    for name in expected:
        assert (gradient[name] - expected[name]).abs().max() < 1e-6 * max(1.0, expected[name].abs().max().item())
    monkeypatch.undo()
    fail_above(monkeypatch, 45, calls)
    learner = lora_learner(config)
    assert learner.step(rows)["micro_batch_tokens"] == 40
    count = len(calls)
    learner.step(rows)
    assert all(b * t <= 45 for b, t in calls[count:]), "the smaller budget is kept"


def test_one_row_that_does_not_fit_is_an_error(monkeypatch):
    fail_above(monkeypatch, 5, [])
    with pytest.raises(CoterieError, match=r"single row of \d+ tokens.*gradient_checkpointing"):
        lora_learner().step(ragged_rows())
