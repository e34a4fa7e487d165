"""Rows laid end to end give what padded rows and single rows give: values, gradients and whole steps, on every architecture."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from learn_builders import VOCABULARY, full_logprobs, lora_learner, ragged_rows, row, tiny, train_config, weights_of
from torch.nn import functional as F

from coterie.config import FullWeightsConfig, LoraConfig
from coterie.learn import ops
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner
from coterie.learn.loss import completion_logprobs
from coterie.learn.packed import packed_logprobs, why_not_packed
from coterie.learn.rows import collate, pack, packed_batches, packed_shares, row_length
from coterie.seeding import stream
from coterie.types import CoterieError

ALL = LoraConfig().targets
WAYS = ((packed_logprobs, pack), (completion_logprobs, collate))
# SmolLM2 is a Llama with tied embeddings; Qwen2.5 is a Qwen2, tied up to 3B
MODELS = {
    "qwen2": ("qwen2", {}),
    "qwen2.5": ("qwen2", {"tied": True}),
    "qwen3": ("qwen3", {}),
    "llama": ("llama", {}),
    "smollm2": ("llama", {"tied": True, "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0}}),
    "llama3-rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
    "llama-biased": ("llama", {"attention_bias": True}),
}


def adapted(name, targets=ALL, dtype=torch.float32):
    """A tiny model whose adapter does something, with biases and norms that are not at their neutral values."""
    kind, more = MODELS[name]
    base = tiny(kind, dtype=dtype, **more)
    with torch.no_grad():
        for key, parameter in base.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.from_numpy(stream(0, "vectors", key).normal(0, 0.2, tuple(parameter.shape))))
    model = attach_adapter(base, LoraConfig(rank=4, alpha=8, targets=targets), 0)
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "lora_B" in key:
                parameter.copy_(torch.from_numpy(stream(0, "b", key).normal(0, 0.1, tuple(parameter.shape))))
    return model


def result(model, logprob_N):
    """Log-probs, and the gradient of a weighted sum of them in every trainable parameter."""
    names = [n for n, p in model.named_parameters() if p.requires_grad]
    loss = (logprob_N * torch.linspace(-1, 1, len(logprob_N), device=logprob_N.device)).sum()
    return logprob_N.detach(), dict(zip(names, torch.autograd.grad(loss, [model.get_parameter(n) for n in names]), strict=True))


def packed(model, rows, **options):
    device = next(model.parameters()).device
    return result(model, packed_logprobs(model, pack(rows, [1.0] * len(rows), device=device), **options))


def padded(model, rows):
    device = next(model.parameters()).device
    return result(model, completion_logprobs(model, collate(rows, [1.0] * len(rows), device=device)))


def assert_alike(ours, theirs, values=2e-5, gradients=1e-4):
    torch.testing.assert_close(ours[0], theirs[0], atol=values, rtol=0)
    assert ours[1].keys() == theirs[1].keys()
    for name, gradient in theirs[1].items():
        assert ours[1][name].dtype == torch.float32
        assert gradient.norm() > 0
        assert (ours[1][name] - gradient).norm() <= gradients * gradient.norm(), name


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_packed_equals_padded_equals_single_rows(name, temperature):
    model, rows = adapted(name), ragged_rows(temperature=temperature)
    assert why_not_packed(model) is None
    ours = packed(model, rows)
    assert_alike(ours, padded(model, rows))
    assert_alike(ours, result(model, torch.cat([full_logprobs(model, one) for one in rows])))


@pytest.mark.parametrize("targets", [("q_proj",), ("v_proj", "down_proj"), ("o_proj", "up_proj"), ("k_proj", "gate_proj")])
def test_layers_without_an_adapter(targets):
    model, rows = adapted("qwen2", targets), ragged_rows()
    assert_alike(packed(model, rows), padded(model, rows))


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "llama"])
def test_half_precision_is_as_near_to_exact_as_the_models_own_pass(name):
    rows = ragged_rows(16)
    exact = padded(adapted(name), rows)
    ours, theirs = (way(adapted(name, dtype=torch.bfloat16), rows) for way in (packed, padded))
    assert ours[0].dtype == torch.float32

    def error(got):
        values = (got[0] - exact[0]).square().mean().sqrt()
        return values, sum((got[1][n] - g).norm() / g.norm() for n, g in exact[1].items()) / len(exact[1])

    for mine, peft in zip(error(ours), error(theirs), strict=True):
        assert mine < 1.2 * peft


@pytest.mark.parametrize("positions", [1, 3, 7])
def test_chunks_of_the_head_change_nothing(positions):
    model, rows = adapted("llama"), ragged_rows()
    assert_alike(packed(model, rows, logit_bytes=4 * VOCABULARY * positions), packed(model, rows), 1e-6, 1e-5)


def test_recomputing_layers_changes_nothing():
    model, rows = adapted("qwen3"), ragged_rows()
    assert_alike(packed(model, rows, recompute=True), packed(model, rows), 0.0, 1e-6)


def test_a_row_does_not_see_its_neighbours():
    model, one = adapted("qwen2"), row([1, 2, 3], [4, 5])
    alone = packed(model, [one])[0]
    for other in (row([9] * 7, [8, 7]), row([3], [3])):
        assert torch.allclose(packed(model, [other, one])[0][2 if len(other.completion_ids) == 2 else 1 :], alone, atol=1e-5)


def test_no_gradient_is_prepared_where_none_is_wanted():
    model, rows = adapted("qwen2"), ragged_rows()
    with torch.no_grad():
        got = packed_logprobs(model, pack(rows, [1.0] * len(rows)))
    assert not got.requires_grad
    torch.testing.assert_close(got, packed(model, rows)[0], atol=0, rtol=0)


@pytest.mark.parametrize("budget", [10_000, 60, 1])
@pytest.mark.parametrize("recompute", [False, True])
def test_a_packed_learner_takes_the_same_steps(budget, recompute):
    runs = []
    for together, tokens in ((False, 10_000), (True, budget)):
        config = train_config(tokens_per_micro_batch=tokens).model_copy(update={"gradient_checkpointing": recompute})
        learner = Learner(lora_learner(config).model, config, packed=together)
        runs.append(([learner.step(ragged_rows(seed=s)) for s in range(3)], weights_of(learner)))
    for ours, theirs in zip(runs[1][0], runs[0][0], strict=True):
        assert (ours.pop("packed"), theirs.pop("packed")) == (True, False)
        ours.pop("micro_batch_tokens")
        assert ours == pytest.approx({k: v for k, v in theirs.items() if k != "micro_batch_tokens"}, rel=1e-4, abs=1e-5)
    for name, expected in runs[0][1].items():
        torch.testing.assert_close(runs[1][1][name], expected, atol=1e-4, rtol=1e-3)


def test_the_active_adapter_of_several_is_the_one_that_counts():
    from peft import LoraConfig as Peft

    model, rows = adapted("qwen2"), ragged_rows()
    expected = packed(model, rows)[0]
    model.add_adapter("other", Peft(r=2, target_modules=["q_proj"], init_lora_weights=False))
    assert torch.equal(packed(model, rows)[0], expected)
    model.set_adapter("other")
    assert why_not_packed(model) is None
    with torch.no_grad():
        ours, theirs = (way(model, pack_or_collate(rows, [1.0] * len(rows))) for way, pack_or_collate in WAYS)
    torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=0)
    assert (ours - expected).abs().max() > 0.01


def test_what_cannot_be_packed_says_why():
    from transformers import Gemma2Config, Gemma2ForCausalLM, Qwen2Config, Qwen2ForCausalLM

    assert "all of its weights" in why_not_packed(attach_adapter(tiny(), FullWeightsConfig(kind="full"), 0))
    assert "dropout" in why_not_packed(attach_adapter(tiny(), LoraConfig(rank=2, dropout=0.1), 0))
    small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    gemma = Gemma2ForCausalLM(Gemma2Config(**small, num_hidden_layers=1, head_dim=8))
    assert "gemma2" in why_not_packed(attach_adapter(gemma, LoraConfig(rank=2), 0))
    window = Qwen2ForCausalLM(
        Qwen2Config(**small, num_hidden_layers=2, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    )
    assert "sliding" in why_not_packed(attach_adapter(window, LoraConfig(rank=2), 0))


def test_the_cpu_and_full_precision_take_the_models_own_pass():
    assert lora_learner().packed is False
    assert lora_learner().step(ragged_rows())["packed"] is False


def test_packing_by_hand():
    batch = pack([row([1, 2], [3, 4, 5], 2.0, [-1, -2, -3], 0.5), row([6], [7], -1.0, [-4])], [0.1, 0.2])
    assert batch.ids_BT.tolist() == [[1, 2, 3, 4, 5, 6, 7]]
    assert batch.layout.position_T.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert batch.layout.own == batch.layout.whole == (5, 2)
    assert batch.layout.key_M is None
    assert batch.row_N.tolist() == [0, 0, 0, 0]
    assert batch.source_N.tolist() == [1, 2, 3, 5]
    assert batch.target_N.tolist() == [3, 4, 5, 7]
    assert batch.sampler_logprob_N.tolist() == [-1, -2, -3, -4]


def conversation(seed=0):
    """The rows of two episodes of one task: a seat's prompts begin alike, in the first episode each repeats the seat's earlier row
    whole, and two rows are the same."""
    rng = stream(seed, "conversation")

    def ids(count):
        return rng.integers(0, VOCABULARY, count).tolist()

    openings, rows = {"A": ids(5), "B": ids(6)}, []
    for episode in range(2):
        views = {seat: list(opening) for seat, opening in openings.items()}
        for turn in range(6):
            seat, said = "AB"[turn % 2], ids(3 + turn)
            rows.append(row(views[seat], said, float(rng.normal()), rng.normal(-3.5, 0.3, len(said)).tolist(), 0.5 + 0.1 * turn))
            for view in views.values():
                view += [*(said if episode == 0 else said[1:]), *ids(2)]
    return [*rows, rows[3]]


def assert_laid_out(batch, rows):
    """Each row's tokens, found through the layout, are the row's; its own are at its end; keys and queries are where it says."""
    layout = batch.layout
    keys = layout.key_M if layout.key_M is not None else torch.arange(batch.ids_BT.shape[1])
    assert layout.own_bounds.tolist() == [0, *itertools.accumulate(layout.own)]
    assert layout.whole_bounds.tolist() == [0, *itertools.accumulate(layout.whole)]
    assert layout.own_bounds.dtype == layout.whole_bounds.dtype == torch.int32
    found = []
    for i, (own, whole) in enumerate(zip(layout.own, layout.whole, strict=True)):
        start, at = layout.own_bounds[i], keys[layout.whole_bounds[i] : layout.whole_bounds[i + 1]]
        assert at[whole - own :].tolist() == list(range(start, start + own))
        assert layout.position_T[at].tolist() == list(range(whole))
        found.append(tuple(batch.ids_BT[0, at].tolist()))
    wanted = {(*r.prompt_ids, *r.completion_ids) for r in rows}
    assert set(found) <= wanted
    assert all(any(one[: len(ids)] == ids for one in found) for ids in wanted)
    assert batch.target_N.tolist() == [token for r in rows for token in r.completion_ids]
    ends = [(len(r.prompt_ids) + k, r) for r in rows for k in range(len(r.completion_ids))]
    for place, (position, r) in zip(batch.source_N.tolist(), ends, strict=True):
        assert layout.position_T[place] == position - 1
        assert batch.ids_BT[0, place] == (*r.prompt_ids, *r.completion_ids)[position - 1]


def test_what_rows_begin_with_is_laid_out_once():
    batch = pack([row([1, 2, 3], [4, 5]), row([1, 2, 3, 4], [6]), row([1, 2, 3, 4], [6]), row([2], [3])], [1.0] * 4)
    assert batch.ids_BT.tolist() == [[1, 2, 3, 4, 5, 6, 2, 3]]
    assert batch.layout.own == (5, 1, 2)
    assert batch.layout.whole == (5, 5, 2)
    assert batch.layout.key_M.tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 5, 6, 7]
    assert batch.source_N.tolist() == [2, 3, 3, 3, 6]


@given(st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=6), st.integers(1, 3)), min_size=1, max_size=8))
def test_any_rows_are_laid_out_right_in_any_order(drawn):
    rows = [row(ids, (ids * 3)[:count]) for ids, count in drawn]
    assert_laid_out(pack(rows, [1.0] * len(rows)), rows)
    for world in (1, 2, 3):
        shares = packed_shares(rows, world)
        assert sorted(i for share in shares for i in share) == list(range(len(rows)))
    ordered = [rows[i] for i in packed_shares(rows, 1)[0]]
    together = pack(ordered, [1.0] * len(rows))
    assert_laid_out(together, ordered)
    beginnings = {(*r.prompt_ids, *r.completion_ids)[:count] for r in rows for count in range(1, row_length(r) + 1)}
    assert together.ids_BT.shape[1] == len(beginnings), "no beginning is computed twice"
    for budget in (1, 7, 20):
        plan = packed_batches(ordered, budget)
        assert [i for part in plan for i in part] == list(range(len(rows)))
        for part in plan:
            size = pack([ordered[i] for i in part], [1.0] * len(part)).ids_BT.shape[1]
            whole = row_length(ordered[part[0]])
            assert size <= max(budget, whole)


@pytest.mark.parametrize("name", ["qwen2", "qwen3", "smollm2"])
def test_rows_that_share_tokens_give_what_they_give_apart(name):
    model, rows = adapted(name), conversation()
    rows = [rows[i] for i in packed_shares(rows, 1)[0]]
    batch = pack(rows, [1.0] * len(rows))
    assert batch.ids_BT.numel() < 0.7 * sum(map(row_length, rows))
    assert_alike(result(model, packed_logprobs(model, batch)), padded(model, rows))


@pytest.mark.parametrize("budget", [10_000, 60, 1])
def test_a_step_on_shared_tokens_is_the_step_on_rows_apart(budget):
    runs = []
    for together in (False, True):
        config = train_config(tokens_per_micro_batch=budget)
        learner = Learner(lora_learner(config).model, config, packed=together)
        runs.append(([learner.step(conversation(s)) for s in range(3)], weights_of(learner)))
    for ours, theirs in zip(runs[1][0], runs[0][0], strict=True):
        for key in theirs.keys() - {"packed"}:
            assert ours[key] == pytest.approx(theirs[key], rel=1e-4, abs=1e-5), key
    for name, expected in runs[0][1].items():
        torch.testing.assert_close(runs[1][1][name], expected, atol=1e-4, rtol=1e-3)


def values(name, *shape):
    return torch.from_numpy(stream(0, name).normal(0, 1, shape)).float().requires_grad_()


def gradients_of(outputs, leaves):
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    loss = sum((out * torch.cos(torch.arange(out.numel()).view(out.shape))).sum() for out in outputs)
    return torch.autograd.grad(loss, leaves)


def test_written_out_gradients_are_those_of_autograd():
    x, delta, weight = values("x", 5, 8), values("delta", 5, 8), values("weight", 8).detach()
    for ours, plain, leaves in [
        (ops.norm(x, weight, 1e-6), F.rms_norm(x, (8,), weight, 1e-6), (x,)),
        (ops.add_norm(x, delta, weight, 1e-6), (x + delta, F.rms_norm(x + delta, (8,), weight, 1e-6)), (x, delta)),
    ]:
        for got, expected in zip(gradients_of(ours, leaves), gradients_of(plain, leaves), strict=True):
            torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-4)
    gate, up, upstream = values("gate", 5, 8), values("up", 5, 8), values("upstream", 5, 8)
    product, gate_gradient, up_gradient = ops.gate_backward(gate.detach(), up.detach(), upstream.detach().clone())
    expected = F.silu(gate) * up
    torch.testing.assert_close(product, expected.detach())
    wanted = torch.autograd.grad((expected * upstream.detach()).sum(), (gate, up))
    torch.testing.assert_close((gate_gradient, up_gradient), wanted, atol=1e-5, rtol=1e-4)


def test_slope_of_a_sure_token_keeps_its_digits():
    """1 - p, with p within 1e-4 of 1: rounded to bf16 before the subtraction it would be 0."""
    logits = torch.tensor([[10.0, 0.0, -1.0]])
    _, slope = ops.log_softmax(logits, torch.tensor([0]), torch.tensor([1.0]), torch.bfloat16)
    expected = -torch.softmax(logits.double(), -1)
    expected[0, 0] += 1
    torch.testing.assert_close(slope.double(), expected, rtol=5e-3, atol=0)


def test_one_row_that_does_not_fit_says_what_to_do(monkeypatch):
    from coterie.learn import learner as module

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(module, "packed_logprobs", full)
    config = train_config()
    with pytest.raises(CoterieError, match=r"single row of \d+ tokens"):
        Learner(lora_learner(config).model, config, packed=True).step(ragged_rows())
