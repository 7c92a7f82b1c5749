"""Smooth-AP: the function against an oracle of plain loops, and its class."""

import math
from importlib import import_module

import pytest
import torch

from mmrank.functional import smooth_ap_loss
from mmrank.models.losses import RaMBOLoss, SmoothAPLoss


def oracle(scores, relevance, tau):
    """The definition, pair by pair, differentiated by torch."""
    losses = []
    for c in range(scores.shape[1]):
        column, relevant = scores[:, c], relevance[:, c].nonzero().flatten()
        precisions = []
        for i in relevant.tolist():
            rank = among = 1
            for j in range(len(column)):
                if j != i:
                    above = torch.sigmoid((column[j] - column[i]) / tau)
                    rank = rank + above
                    among = among + above * relevance[j, c]
            precisions.append(among / rank)
        if precisions:
            losses.append(1 - sum(precisions) / len(precisions))
    return sum(losses) / len(losses)


def batch(n=17, classes=3, dtype=torch.float64, ties=False):
    scores = torch.randn(n, classes, dtype=dtype)
    if ties:
        scores = (scores * 2).round() / 2
    relevance = torch.rand(n, classes) < .3
    relevance[0, 0] = True
    relevance[:, -1] = False  # a class that is absent
    return scores.requires_grad_(), relevance


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('ties', [False, True])
@pytest.mark.parametrize('tau', [.05, 1.])
@pytest.mark.parametrize('comparisons', [1, 40, 1 << 24])
def test_value_and_gradient_equal_the_definition(dtype, ties, tau,
                                                 comparisons, monkeypatch):
    module = import_module('mmrank.functional.smooth_ap_loss')
    monkeypatch.setattr(module, '_COMPARISONS', comparisons)
    scores, relevance = batch(dtype=dtype, ties=ties)
    value = smooth_ap_loss(scores, relevance, tau=tau)
    value.backward()
    same = scores.detach().double().requires_grad_()
    expected = oracle(same, relevance, tau)
    expected.backward()
    close = dict(rtol=1e-9, atol=1e-12) if dtype == torch.float64 \
        else dict(rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(value.double(), expected, **close)
    torch.testing.assert_close(scores.grad.double(), same.grad, **close)


def test_a_small_tau_is_average_precision():
    scores, _ = batch()
    labels = torch.randint(0, 4, (17, ))
    exact = RaMBOLoss(margin=0., memory_batches=0, cross_class_weight=0.)
    smooth = SmoothAPLoss(tau=1e-6)
    assert smooth(scores, labels).item() == \
        pytest.approx(exact(scores, labels).item())


@pytest.mark.parametrize('n', [0, 4])
def test_nothing_relevant_is_zero_with_a_gradient(n):
    scores = torch.randn(n, 2, requires_grad=True)
    value = smooth_ap_loss(scores, torch.zeros(n, 2, dtype=torch.bool))
    value.backward()
    assert value == 0 and not scores.grad.any()


def test_only_relevant_items_are_no_loss():
    value = smooth_ap_loss(torch.randn(5, 1), torch.ones(5, 1).bool())
    assert value.item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize('tau', [0, -1., math.inf, math.nan])
def test_a_temperature_out_of_range_is_named(tau):
    scores, relevance = batch()
    with pytest.raises(ValueError, match='tau'):
        smooth_ap_loss(scores, relevance, tau=tau)
    with pytest.raises(ValueError, match='tau'):
        SmoothAPLoss(tau=tau)


def test_the_class_ranks_each_class_of_a_detectors_batch():
    scores, _ = batch()
    labels = torch.randint(-1, 4, (17, ))
    loss = SmoothAPLoss(tau=.2, loss_weight=2.)
    keep = labels >= 0
    assert loss(scores, labels) == 2 * smooth_ap_loss(
        scores[keep], labels[keep, None] == torch.arange(3), tau=.2)
