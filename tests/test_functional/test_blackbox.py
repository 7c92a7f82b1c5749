"""The rule seam: metrics of ten lines against finite perturbation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import Ranks, blackbox_loss, blackbox_recall_loss

from ..oracles import argsort_rank


def ndcg_loss(scores, relevance, **options):
    """1 - NDCG, the mean over lists: all that a new metric takes."""

    def rule(ranks):
        rank = (ranks.among_relevant + ranks.irrelevant_above).double()
        places = torch.arange(1, scores.shape[1] + 1).double()
        ideal = (1 / (1 + places).log2()).cumsum(0)[
            ranks.num_relevant.long() - 1]
        gain = 1 / (1 + rank).log2()
        slope = gain**2 / ((1 + rank) * math.log(2)) / ideal
        return ((1 / ranks.num_relevant - gain / ideal) / ranks.num_lists,
                slope / ranks.num_lists)

    return blackbox_loss(scores, relevance, rule, **options)


def ndcg_by_argsort(scores, relevance):
    """The mean of 1 - NDCG of ranks by two argsorts; no ties."""
    return 1 - ndcg_of_ranks(argsort_rank(scores), relevance).mean()


def ndcg_of_ranks(ranks, relevance):
    places = 1 + torch.arange(1, relevance.shape[1] + 1).double()
    ideal = (1 / places.log2()).cumsum(0)[relevance.sum(1) - 1]
    return (relevance / (1 + ranks).log2()).sum(1) / ideal


def finite_perturbation(scores, relevance, lambda_val):
    """(rank(y + lambda g) - rank(y)) / (n lambda), g by automatic gradient."""
    num_lists, n = scores.shape
    before = argsort_rank(scores)
    normalised = (before / n).requires_grad_()
    loss = 1 - ndcg_of_ranks(normalised * n, relevance).mean()
    g, = torch.autograd.grad(loss, normalised)
    return loss.detach(), (argsort_rank(scores + lambda_val * g) - before) / (
        n * lambda_val)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), lists=st.integers(1, 5),
       n=st.integers(2, 40), exponent=st.floats(-2, 2))
def test_a_new_metric_has_the_gradient_of_finite_perturbation(
        seed, lists, n, exponent):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(lists, n, generator=generator, dtype=torch.float64)
    relevance = torch.rand(lists, n, generator=generator) < .3
    relevance[:, 0] = True
    leaf = scores.clone().requires_grad_()
    loss = ndcg_loss(leaf, relevance, lambda_val=10**exponent)
    loss.backward()
    value, gradient = finite_perturbation(scores, relevance, 10**exponent)
    torch.testing.assert_close(loss.detach(), value)
    torch.testing.assert_close(leaf.grad, gradient, rtol=1e-9, atol=1e-12)


def test_a_perfect_ranking_has_no_loss():
    scores = torch.tensor([[3., 2., 1., 0.]], requires_grad=True)
    loss = ndcg_loss(scores, torch.tensor([[1, 1, 0, 0]]))
    loss.backward()
    assert loss.item() == pytest.approx(0, abs=1e-7)
    assert not scores.grad.any()


def test_lists_without_a_relevant_item_do_not_count():
    scores = torch.randn(3, 8)
    relevance = torch.rand(3, 8) < .5
    relevance[1], relevance[:, 0] = False, torch.tensor([True, False, True])
    assert ndcg_loss(scores, relevance) == pytest.approx(
        ndcg_loss(scores[[0, 2]], relevance[[0, 2]]))


def test_items_that_are_not_valid_are_as_if_cut_away():
    scores, relevance = torch.randn(2, 9), torch.rand(2, 9) < .4
    relevance[:, 0] = True
    valid = (torch.arange(9) < 6).expand(2, 9)
    masked = ndcg_loss(scores, relevance, valid=valid)
    assert masked == pytest.approx(
        ndcg_loss(scores[:, :6], relevance[:, :6]))


def test_a_rule_sees_what_its_documentation_promises():
    seen = []

    def rule(ranks):
        seen.append(ranks)
        return (ranks.among_relevant * 0.).double(), torch.zeros(
            ranks.among_relevant.shape, dtype=torch.float64)

    blackbox_loss(torch.tensor([[4., 3., 2., 1.], [1., 2., 3., 4.]]),
                  torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0]]), rule)
    ranks, = seen
    assert isinstance(ranks, Ranks)
    assert int(ranks.num_lists) == 1 and int(ranks.num_pairs) == 2
    pairs = sorted(zip(ranks.among_relevant.view(-1).tolist(),
                       ranks.irrelevant_above.view(-1).tolist()))
    assert {(1, 0), (2, 1)} <= set(pairs)


@pytest.mark.parametrize('loss, name', [
    (ndcg_loss, 'scores'), (blackbox_recall_loss, 'similarity')])
def test_messages_name_the_argument_of_the_loss(loss, name):
    with pytest.raises(ValueError, match=rf'{name} must have shape \(Q, G\)'):
        loss(torch.zeros(3), torch.zeros(3).bool())
