"""The learner's log-probabilities against the plain way, position by position."""

from types import SimpleNamespace

import pytest
import torch
from learn_builders import VOCABULARY, TableModel, full_logprobs, ragged_rows, row, tiny
from torch.nn import functional as F
from transformers import Gemma2Config, Gemma2ForCausalLM, GPT2Config, GPT2LMHeadModel, GraniteConfig, GraniteForCausalLM

from coterie.config import LoraConfig
from coterie.learn.adapter import attach_adapter
from coterie.learn.loss import check_head, completion_logprobs
from coterie.learn.rows import collate
from coterie.types import CoterieError


def batch_of(rows, pad_id=0):
    return collate(rows, [1.0] * len(rows), pad_id=pad_id)


@pytest.mark.parametrize("kind", ["qwen2", "qwen3", "llama"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_ragged_rows_equal_single_rows(kind, attention, temperature):
    model, rows = tiny(kind, attn_implementation=attention), ragged_rows(temperature=temperature)
    expected = torch.cat([full_logprobs(model, one) for one in rows])
    torch.testing.assert_close(completion_logprobs(model, batch_of(rows)), expected, atol=2e-5, rtol=0)


def test_with_an_adapter_and_tied_embeddings():
    model, rows = attach_adapter(tiny(tied=True), LoraConfig(rank=4), 0), ragged_rows()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, 0.05)
    expected = torch.cat([full_logprobs(model, one) for one in rows])
    torch.testing.assert_close(completion_logprobs(model, batch_of(rows)), expected, atol=2e-5, rtol=0)
    with model.disable_adapter():
        assert (full_logprobs(model, rows[0]) - expected[: len(rows[0].completion_ids)]).abs().max() > 0.01


def test_learned_positions_count_from_each_rows_first_token():
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3)
    model, rows = GPT2LMHeadModel(config).eval(), ragged_rows()
    check_head(model)
    expected = torch.cat([full_logprobs(model, one) for one in rows])
    torch.testing.assert_close(completion_logprobs(model, batch_of(rows)), expected, atol=2e-5, rtol=0)


def test_equals_minus_cross_entropy():
    model, one = tiny(), row([1, 2, 3], [4, 5, 6, 7])
    logits_TV = model(input_ids=torch.tensor([[1, 2, 3, 4, 5, 6, 7]])).logits[0]
    expected = -F.cross_entropy(logits_TV[2:6], torch.tensor([4, 5, 6, 7]), reduction="none")
    torch.testing.assert_close(completion_logprobs(model, batch_of([one])), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("positions", [1, 3, 7, 1000])
def test_chunks_change_neither_value_nor_gradient(positions):
    rows, results = ragged_rows(), []
    for size in (10**6, positions):
        model = tiny()
        logprob_N = completion_logprobs(model, batch_of(rows), logit_bytes=4 * VOCABULARY * size)
        (logprob_N * torch.linspace(-1, 1, len(logprob_N))).sum().backward()
        results.append([logprob_N.detach(), *(p.grad for p in model.parameters())])
    for whole, cut in zip(*results, strict=True):
        torch.testing.assert_close(cut, whole, atol=2e-5, rtol=1e-5)


def test_logits_exist_at_completion_positions_only():
    model, seen = tiny(), []
    model.lm_head.register_forward_hook(lambda _module, _inputs, out: seen.append(out.shape))
    completion_logprobs(model, batch_of([row([1] * 20, [2, 3]), row([4] * 3, [5])]))
    assert seen == [(3, VOCABULARY)]


def test_temperature_pairwise():
    """log p_T(i) - log p_T(j) = (log p_1(i) - log p_1(j)) / T: tells a forgotten temperature whatever the normalisation."""
    model, temperature = tiny(), 0.6

    def pair(t):
        i, j = completion_logprobs(model, batch_of([row([1, 2], [3], temperature=t), row([1, 2], [9], temperature=t)]))
        return (i - j).item()

    assert abs(pair(1.0)) > 0.1
    assert pair(temperature) == pytest.approx(pair(1.0) / temperature, rel=1e-5)


def test_rows_of_different_temperature_in_one_batch():
    model, rows = tiny(), [row([1, 2], [3, 4], temperature=0.5), row([1, 2], [3, 4], temperature=2.0)]
    got = completion_logprobs(model, batch_of(rows)).view(2, 2)
    torch.testing.assert_close(got, torch.stack([full_logprobs(model, one) for one in rows]), atol=1e-6, rtol=0)


EOS = 11


@pytest.mark.parametrize("pad", [EOS, 10], ids=["pad==eos", "pad!=eos"])
@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "truncated"])
def test_exactly_the_completion_is_trained(pad, stopped):
    """In a bigram table the gradient's rows are the tokens read from, its negative entries the tokens predicted."""
    model = TableModel()
    short = row([1, 2], [3, EOS] if stopped else [3, 4])
    longer = row([5, 6, 7], [8, 9, 0, 8, EOS])
    completion_logprobs(model, batch_of([short, longer], pad_id=pad)).sum().neg().backward()
    gradient_VV = model.table_VV.grad
    read = {source for source in range(12) if gradient_VV[source].abs().sum() > 0}
    assert read == {2, 3, 7, 8, 9, 0}, "read from the last prompt token up to the last but one; never from a pad or the last token"
    predicted = {(s, t) for s in read for t in range(12) if gradient_VV[s, t] < 0}
    end = EOS if stopped else 4
    assert predicted == {(2, 3), (3, end), (7, 8), (8, 9), (9, 0), (0, 8), (8, EOS)}


def test_pads_have_no_influence():
    model, rows = tiny(), [row([1, 2], [3, 4]), row([5] * 6, [6] * 5)]
    assert torch.equal(completion_logprobs(model, batch_of(rows, pad_id=0)), completion_logprobs(model, batch_of(rows, pad_id=36)))


def test_bf16_base_gives_fp32_logprobs():
    model, rows = tiny(dtype=torch.bfloat16), ragged_rows()
    got = completion_logprobs(model, batch_of(rows))
    assert got.dtype == torch.float32
    assert (got - torch.cat([full_logprobs(tiny(), one) for one in rows])).abs().max() < 0.2


small = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (lambda: Gemma2ForCausalLM(Gemma2Config(**small, num_key_value_heads=1, head_dim=8)), "final_logit_softcapping"),
        (lambda: GraniteForCausalLM(GraniteConfig(**small, logits_scaling=8.0)), "logits_scaling"),
    ],
)
def test_models_that_change_their_logits_are_refused(model, key):
    with pytest.raises(CoterieError, match=key):
        check_head(model())


def test_granite_without_scaling_is_fine():
    check_head(GraniteForCausalLM(GraniteConfig(**small, logits_scaling=1.0)))


def test_an_unknown_change_of_logits_is_found_by_the_probe():
    class Capped(TableModel):
        def forward(self, input_ids, use_cache=False):
            return SimpleNamespace(logits=torch.tanh(super().forward(input_ids).logits))

    check_head(TableModel())
    with pytest.raises(CoterieError, match="after the head"):
        check_head(Capped())
