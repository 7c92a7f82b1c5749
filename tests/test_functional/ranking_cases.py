"""Drawn cases of ranked lists, and what equality with an oracle means."""

import pytest
import torch
from hypothesis import strategies as st

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def draw_scores(generator, n, columns, dtype, levels):
    scores = torch.randn(n, columns, generator=generator)
    if levels:  # heavy ties, both zeros among them
        scores = (scores * levels).round() / levels
    return scores.to(dtype)


def lift(scores):
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def assert_same(loss, gradient, expected, dtype):
    value, slope = expected
    tight = 1e-12 if dtype == torch.float64 else 2e-7
    assert loss.item() == pytest.approx(value.item(), rel=tight, abs=1e-15)
    assert gradient.dtype == dtype
    torch.testing.assert_close(
        gradient, slope.to(dtype),
        rtol=1e-12 if dtype == torch.float64 else
        {torch.float32: 3e-7}.get(dtype, 1e-2), atol=1e-15
        if dtype in (torch.float32, torch.float64) else 1e-7)


CASES = dict(
    seed=st.integers(0, 2**31),
    n=st.integers(0, 200),
    density=st.sampled_from([0., .01, .1, .5, .9, 1.]),
    dtype=st.sampled_from(DTYPES),
    levels=st.sampled_from([0, 1, 2, 5]),
    margin=st.sampled_from([0., .15, 1., 2.5]),
    exponent=st.floats(-3, 3))
