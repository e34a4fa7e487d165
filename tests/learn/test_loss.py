"""The loss against the textbook, polgrad and finite differences."""

import json
from pathlib import Path

import polgrad
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn_builders import TableModel, full_logprobs, ragged_rows, row, tiny

from coterie.config import LossConfig
from coterie.learn.loss import completion_logprobs, policy_loss, token_weights
from coterie.learn.rows import collate

GOLDEN = Path(__file__).parents[1] / "golden" / "loss.json"
CONFIGS = {
    "tokens": LossConfig(normaliser="tokens"),
    "live_tokens": LossConfig(normaliser="live_tokens"),
    "sequences": LossConfig(normaliser="sequences"),
    "constant": LossConfig(normaliser="constant", constant_length=10),
}
POLGRAD = {
    "tokens": polgrad.Aggregation.TOKEN_MEAN,
    "sequences": polgrad.Aggregation.SEQ_MEAN_TOKEN_MEAN,
    "constant": polgrad.Aggregation.TOKEN_SUM_NORM,
}


def loss_of(model, rows, config):
    batch = collate(rows, token_weights(rows, config))
    return policy_loss(
        completion_logprobs(model, batch),
        batch.sampler_logprob_N,
        batch.advantage_N,
        batch.weight_N,
        clip_low=config.clip_low,
        clip_high=config.clip_high,
    )


def near_policy(model, rows, spread=0.3):
    """The same rows, with sampler log-probs near the model's own, so that ratios fall on both sides of both clips."""
    out = []
    for k, one in enumerate(rows):
        exact = full_logprobs(model, one).detach()
        noise = torch.linspace(-spread, spread, len(exact)).roll(k)
        out.append(row(one.prompt_ids, one.completion_ids, one.advantage, (exact + noise).tolist(), one.temperature, one.episode))
    return out


@pytest.mark.parametrize("mode", CONFIGS)
def test_by_the_textbook_on_a_table_model(mode):
    """Plain loops over rows and tokens."""
    model, config = TableModel(), CONFIGS[mode]
    rows = near_policy(model, ragged_rows(vocabulary=12))
    live_tokens = sum(len(r.completion_ids) for r in rows if r.advantage)
    all_tokens = sum(len(r.completion_ids) for r in rows)
    expected = torch.zeros(())
    for one in rows:
        length = len(one.completion_ids)
        divisor = {"tokens": all_tokens, "live_tokens": live_tokens, "sequences": len(rows) * length, "constant": len(rows) * 10}[
            mode
        ]
        for new, old in zip(full_logprobs(model, one), one.logprobs, strict=True):
            ratio = (new - old).exp()
            clipped = min(max(ratio.item(), 0.8), 1.28)
            expected = (
                expected - min(ratio * one.advantage, torch.tensor(clipped) * one.advantage, key=lambda x: x.item()) / divisor
            )
    (want,) = torch.autograd.grad(expected, model.table_VV)
    out = loss_of(model, rows, config)
    (got,) = torch.autograd.grad(out.loss, model.table_VV)
    assert out.clipped_N.any()
    assert not out.clipped_N.all()
    assert out.loss.item() == pytest.approx(expected.item(), abs=1e-6)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("mode", POLGRAD)
def test_agrees_with_polgrad(mode):
    model, config = tiny(), CONFIGS[mode]
    rows = near_policy(model, ragged_rows())
    width = max(len(r.completion_ids) for r in rows)
    mask = torch.tensor([[k < len(r.completion_ids) for k in range(width)] for r in rows])
    new, old = torch.zeros(len(rows), width), torch.zeros(len(rows), width)
    new = new.masked_scatter(mask, torch.cat([full_logprobs(model, r) for r in rows]))
    old = old.masked_scatter(mask, torch.tensor([x for r in rows for x in r.logprobs]))
    theirs = polgrad.policy_loss(
        polgrad.PolicyLossConfig(
            ratio=polgrad.RatioKind.TOKEN,
            surrogate=polgrad.SurrogateKind.PG_CLIP,
            clip=polgrad.ClipConfig(eps_low=0.2, eps_high=0.28),
            aggregation=POLGRAD[mode],
            norm_len=10,
        ),
        logprobs=new,
        old_logprobs=old,
        advantages=torch.tensor([r.advantage for r in rows]),
        response_mask=mask,
    )
    want = torch.autograd.grad(theirs.loss, list(model.parameters()))
    ours = loss_of(model, rows, config)
    got = torch.autograd.grad(ours.loss, list(model.parameters()))
    assert ours.loss.item() == pytest.approx(theirs.loss.item(), abs=1e-6)
    assert int(ours.clipped_N.sum()) == int(((theirs.clipped_low | theirs.clipped_high)[mask]).sum()) > 0
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_gradient_by_finite_differences(temperature):
    """In float64, on every entry of the table that can matter and some that cannot."""
    model = TableModel(vocabulary=6, dtype=torch.float64)
    rows = [row([0, 1], [2, 3, 2], 0.7, [-1.0, -2.0, -1.5], temperature), row([4], [5], -1.3, [-1.7], temperature)]
    table_VV = model.table_VV
    (gradient_VV,) = torch.autograd.grad(loss_of(model, rows, LossConfig(clip_low=0.9, clip_high=9.0)).loss, table_VV)
    for i in range(6):
        for j in range(6):
            sides = []
            for delta in (1e-5, -1e-5):
                with torch.no_grad():
                    table_VV[i, j] += delta
                    sides.append(loss_of(model, rows, LossConfig(clip_low=0.9, clip_high=9.0)).loss.item())
                    table_VV[i, j] -= delta
            assert gradient_VV[i, j].item() == pytest.approx((sides[0] - sides[1]) / 2e-5, abs=1e-8)
    assert gradient_VV[[0, 5]].abs().max() == 0.0, "nothing is read from the first prompt token or a last token"


def test_on_policy_gradient_is_the_plain_policy_gradient():
    model, rows = tiny(), near_policy(tiny(), ragged_rows(), spread=0.0)
    got = torch.autograd.grad(loss_of(model, rows, LossConfig()).loss, list(model.parameters()))
    total = sum(len(r.completion_ids) for r in rows)
    plain = -sum(r.advantage * full_logprobs(model, r).sum() for r in rows) / total
    for a, b in zip(got, torch.autograd.grad(plain, list(model.parameters())), strict=True):
        torch.testing.assert_close(a, b, atol=2e-6, rtol=1e-4)


def test_normalisers_by_hand():
    """Lengths 2, 4, 6, 8; the third row has a zero advantage."""
    rows = [row([1], [2] * n, a) for n, a in ((2, 1.0), (4, -1.0), (6, 0.0), (8, 1.0))]
    assert token_weights(rows, CONFIGS["tokens"]) == [1 / 20] * 4
    assert token_weights(rows, CONFIGS["live_tokens"]) == [1 / 14, 1 / 14, 0.0, 1 / 14]
    assert token_weights(rows, CONFIGS["sequences"]) == [1 / 8, 1 / 16, 1 / 24, 1 / 32]
    assert token_weights(rows, CONFIGS["constant"]) == [1 / 40] * 4


@pytest.mark.parametrize(
    ("mode", "by_hand"), [("tokens", -0.3), ("live_tokens", -3 / 7), ("sequences", -0.25), ("constant", -0.15)]
)
def test_loss_on_policy_by_hand(mode, by_hand):
    """Ratio 1, so each token's loss is minus its advantage: (2 - 4 + 8) tokens, or (1 - 1 + 1) messages, over the divisor."""
    advantages, lengths = (1.0, -1.0, 0.0, 1.0), (2, 4, 6, 8)
    rows = [row([1], [2] * n, a) for n, a in zip(lengths, advantages, strict=True)]
    batch = collate(rows, token_weights(rows, CONFIGS[mode]))
    out = policy_loss(
        batch.sampler_logprob_N, batch.sampler_logprob_N, batch.advantage_N, batch.weight_N, clip_low=0.2, clip_high=0.2
    )
    assert out.loss.item() == pytest.approx(by_hand)


@pytest.mark.parametrize("mode", CONFIGS)
def test_no_live_rows_and_no_rows(mode):
    assert all(w >= 0.0 for w in token_weights([row([1], [2, 3], 0.0)] * 2, CONFIGS[mode]))
    assert token_weights([], CONFIGS[mode]) == []


logprob = st.floats(-5, 0, width=32)


@settings(deadline=None)
@given(st.lists(st.tuples(logprob, logprob, st.floats(-2, 2, width=32)), min_size=1, max_size=10))
def test_clip_never_helps_and_is_reported_where_it_acts(tokens):
    new, old, advantage = torch.tensor(tokens).unbind(1)
    new = new.clone().requires_grad_()
    out = policy_loss(new, old, advantage, torch.ones_like(old), clip_low=0.2, clip_high=0.28)
    out.loss.backward()
    assert out.loss >= -(out.ratio_N * advantage).sum() - 1e-4
    upper = (out.ratio_N > 1.28) & (advantage > 0)
    lower = (out.ratio_N < 0.8) & (advantage < 0)
    assert torch.equal(out.clipped_N, upper | lower)
    assert (new.grad[out.clipped_N] == 0).all()


def golden_values(kind, mode, temperature):
    """A fixed setup: arbitrary sampler log-probs, so that loss and gradient depend on every log-prob of the model."""
    model = tiny(kind)
    loss = loss_of(model, ragged_rows(temperature=temperature), CONFIGS[mode]).loss
    gradients = torch.autograd.grad(loss, list(model.parameters()))
    return loss.item(), torch.stack([g.norm() for g in gradients]).norm().item()


@pytest.mark.parametrize("entry", json.loads(GOLDEN.read_text())["values"], ids=lambda e: "-".join(map(str, e.values())))
def test_golden(entry):
    """Written once by `golden_values`; they change only when the loss, the streams or transformers' models change."""
    loss, norm = golden_values(entry["model"], entry["normaliser"], entry["temperature"])
    assert loss == pytest.approx(entry["loss"], rel=1e-5)
    assert norm == pytest.approx(entry["grad_norm"], rel=1e-4)
