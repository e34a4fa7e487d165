"""The learner on a CUDA device: passes against fp32 on the CPU, a memory that really ends, resuming."""

import pytest
import torch
from learn_builders import assert_near, draw, ragged_rows, row, train_config, weights_of
from test_packed import adapted, packed, padded
from torch.nn import functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

from coterie.config import LoraConfig
from coterie.learn import checkpoint
from coterie.learn.adapter import attach_adapter
from coterie.learn.learner import Learner
from coterie.learn.packed import attend
from coterie.learn.rows import pack

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.mark.parametrize(("heads", "key_heads", "size"), [(12, 2, 128), (9, 3, 64)])
@pytest.mark.parametrize("shared", [False, True])
def test_attention_within_rows(heads, key_heads, size, shared):
    start = 100 if shared else 0
    lines = [(7,), *((*range(1000, 1000 + start), *range(i * 2000, i * 2000 + n)) for i, n in enumerate((300, 64, 1), start=1))]
    batch = pack([row(ids, [1]) for ids in lines], [1.0] * 4, device="cuda")
    tokens = batch.ids_BT.shape[1]
    assert (batch.layout.key_M is not None) == shared
    q, k, v = (draw(tokens, h, size) for h in (heads, key_heads, key_heads))
    upstream = torch.randn(tokens, heads, size, device="cuda")
    outputs = []
    for values in ((q, k, v), tuple(x.detach().float().requires_grad_() for x in (q, k, v))):  # fp32 takes the row by row way
        attended = attend(*values, batch.layout)
        outputs.append([attended.double(), *(g.double() for g in torch.autograd.grad((attended.float() * upstream).sum(), values))])
    assert_near(zip(*outputs, strict=True), 1e-2)


@pytest.mark.parametrize("name", ["qwen2", "qwen2.5", "qwen3", "llama", "smollm2"])
def test_half_precision_on_the_gpu_is_as_near_to_exact_as_the_models_own_pass(name):
    rows = ragged_rows(16)
    exact = padded(adapted(name), rows)
    ours, theirs = (way(adapted(name, dtype=torch.bfloat16).cuda(), rows) for way in (packed, padded))
    for got in (ours, theirs):
        assert got[0].dtype == torch.float32

    def error(got):
        values = (got[0].cpu() - exact[0]).square().mean().sqrt()
        return values, sum((got[1][n].cpu() - g).norm() / g.norm() for n, g in exact[1].items()) / len(exact[1])

    for mine, peft in zip(error(ours), error(theirs), strict=True):
        assert mine < 1.2 * peft


def middling(dtype=torch.bfloat16):
    """About 20 million weights: large enough that a batch fills a small share of the memory."""
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=8192,
        hidden_size=512,
        intermediate_size=2048,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=2,
        tie_word_embeddings=True,
    )
    return attach_adapter(Qwen2ForCausalLM(config).to("cuda", dtype), LoraConfig(rank=8), 0)


def long_rows(count=64, length=512):
    return [row(range(60 * i, 60 * i + length), range(100, 164), (-1.0) ** i, [-9.0] * 64) for i in range(count)]


def test_a_gpu_in_half_precision_packs_and_takes_the_same_steps():
    runs = []
    for together in (None, False):
        learner = Learner(middling(), train_config(lr=1e-3), packed=together)
        runs.append(([learner.step(long_rows(16)) for _ in range(3)], weights_of(learner)))
        assert learner.model(torch.arange(9, device="cuda")[None]).logits.isfinite().all()
    assert [run[0][0]["packed"] for run in runs] == [True, False]
    for ours, theirs in zip(runs[0][0], runs[1][0], strict=True):
        for key in ("loss", "ratio_mean", "surprise", "grad_norm"):
            assert ours[key] == pytest.approx(theirs[key], rel=0.02, abs=0.02), key
    for name, expected in runs[1][1].items():  # Adam's first step is the gradient's sign, and small gradients differ in it
        assert F.cosine_similarity(runs[0][1][name].flatten(), expected.flatten(), dim=0) > 0.9, name


def test_a_memory_that_is_full_halves_the_micro_batch():
    rows = long_rows()
    learner = Learner(middling(), train_config(tokens_per_micro_batch=40_000))
    whole = learner.step(rows)
    assert whole["micro_batch_tokens"] == 40_000
    peak = torch.cuda.max_memory_allocated()
    del learner
    torch.cuda.empty_cache()
    learner = Learner(middling(), train_config(tokens_per_micro_batch=40_000))
    free = torch.cuda.memory_allocated()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((free + 0.4 * (peak - free)) / total)
    try:
        cut = learner.step(rows)
        again = learner.step(rows)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert cut["micro_batch_tokens"] in (20_000, 10_000)
    assert again["micro_batch_tokens"] == cut["micro_batch_tokens"]
    for key in ("loss", "grad_norm", "surprise"):
        assert cut[key] == pytest.approx(whole[key], rel=0.02, abs=1e-3), key


def test_recomputing_layers_takes_less_memory():
    peaks = []
    for recompute in (False, True):
        learner = Learner(
            middling(), train_config(tokens_per_micro_batch=40_000).model_copy(update={"gradient_checkpointing": recompute})
        )
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        learner.step(long_rows())
        peaks.append(torch.cuda.max_memory_allocated() - before)
    assert peaks[1] < 0.7 * peaks[0]


def test_resume(tmp_path):
    learner = Learner(middling(), train_config())
    for _ in range(2):
        learner.step(long_rows(8))
    checkpoint.save(tmp_path, 2, learner, {}, 1)
    other = Learner(middling(), train_config())
    checkpoint.load(checkpoint.latest(tmp_path), other)
    ours, theirs = other.step(long_rows(8)), learner.step(long_rows(8))
    assert ours == pytest.approx(theirs, rel=1e-2, abs=1e-3)
    for name, value in weights_of(learner).items():  # not to the bit: flash attention's backward pass adds in any order
        assert F.cosine_similarity(weights_of(other)[name].flatten(), value.flatten(), dim=0) > 0.999


def test_disabling_the_adapter_is_the_base_exactly():
    learner = Learner(middling(), train_config())
    ids = torch.arange(64, device="cuda")[None]
    base = learner.model.get_base_model()
    with torch.no_grad(), learner.model.disable_adapter():
        before = base(ids).logits
    learner.step(long_rows(8))
    with torch.no_grad(), learner.model.disable_adapter():
        assert torch.equal(base(ids).logits, before)
    assert not torch.equal(base(ids).logits, before)
