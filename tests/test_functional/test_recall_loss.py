"""The recall loss against a slow oracle."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import blackbox_recall_loss

from ..oracles import pairwise_recall
from .ranking_cases import CASES, assert_same, draw_scores, lift


@settings(max_examples=80, deadline=None, derandomize=True)
@given(**{**CASES, 'n': st.integers(0, 40)}, queries=st.integers(0, 12),
       weighting=st.sampled_from(['log', 'loglog']), holes=st.booleans())
def test_recall_loss_equals_the_pairwise_oracle(
        seed, n, density, dtype, levels, margin, exponent, queries,
        weighting, holes):
    generator = torch.Generator().manual_seed(seed)
    scores = draw_scores(generator, queries, n, dtype, levels)
    relevance = torch.rand(scores.shape, generator=generator) < density
    valid = torch.rand(scores.shape, generator=generator) < .8 \
        if holes else None
    leaf = scores.clone().requires_grad_()
    loss = blackbox_recall_loss(
        leaf, relevance, margin=margin, lambda_val=10**exponent,
        weighting=weighting, valid=valid)
    loss.backward()
    assert_same(loss, leaf.grad, pairwise_recall(
        lift(scores), relevance, margin, 10**exponent, weighting, valid),
        dtype)


def test_unknown_weighting_is_named():
    with pytest.raises(ValueError, match="'cubic'"):
        blackbox_recall_loss(
            torch.zeros(1, 2), torch.ones(1, 2).bool(), weighting='cubic')
