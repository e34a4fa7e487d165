"""Inverse-CDF sampling against the distribution it should draw from."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coterie.engines.base import Sampler
from coterie.engines.sampling import sample

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -30.0])


def draw(sampler: Sampler, uniforms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ids, logprobs = sample(LOGITS.expand(len(uniforms), -1), [sampler] * len(uniforms), torch.tensor(uniforms))
    return ids.numpy(), logprobs.numpy()


@pytest.mark.parametrize("temperature", [0.5, 0.9, 1.0, 2.0])
def test_frequencies_over_a_grid_of_uniforms_are_the_probabilities(temperature):
    ids, logprobs = draw(Sampler(temperature), (np.arange(20000) + 0.5) / 20000)
    expected = np.exp(LOGITS.numpy() / temperature) / np.exp(LOGITS.numpy() / temperature).sum()
    np.testing.assert_allclose(np.bincount(ids, minlength=5) / 20000, expected, atol=1e-4)
    np.testing.assert_allclose(logprobs, np.log(expected)[ids], atol=1e-5)


def test_temperature_scales_differences_of_log_probabilities():
    """log p_T(i) - log p_T(j) = (log p_1(i) - log p_1(j)) / T."""
    grid = (np.arange(200) + 0.5) / 200
    by_id = {t: dict(zip(*draw(Sampler(t), grid), strict=True)) for t in (1.0, 0.6)}
    assert by_id[0.6][0] - by_id[0.6][1] == pytest.approx((by_id[1.0][0] - by_id[1.0][1]) / 0.6, abs=1e-5)


@pytest.mark.parametrize(
    ("sampler", "allowed"),
    [(Sampler(top_k=2), {0, 1}), (Sampler(top_p=0.7), {0, 1}), (Sampler(top_p=0.5), {0}), (Sampler(top_k=1), {0})],
)
def test_truncation_keeps_the_likeliest_and_renormalises(sampler, allowed):
    ids, logprobs = draw(sampler, (np.arange(1000) + 0.5) / 1000)
    assert set(ids) == allowed
    weights = np.exp(LOGITS.numpy())[sorted(allowed)]
    np.testing.assert_allclose(np.exp(logprobs), (weights / weights.sum())[ids], rtol=1e-5)


@given(st.floats(0, 1, exclude_max=True), st.lists(st.floats(-20, 20), min_size=1, max_size=300))
def test_every_uniform_gives_a_token_that_can_be_sampled(uniform, logits):
    """Also at the very end of the unit interval, where rounding could step past the last token."""
    row = torch.tensor([[*logits, -torch.inf]])
    for u in (uniform, np.nextafter(1.0, 0.0), 0.0):
        ids, logprobs = sample(row, [Sampler()], torch.tensor([u], dtype=torch.float64))
        assert 0 <= ids.item() < len(logits)
        assert logprobs.item() > -torch.inf
