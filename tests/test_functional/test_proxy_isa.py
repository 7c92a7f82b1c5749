"""The schedule and the weights of Proxy-ISA, against the equations."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import (
    proxy_isa_loss,
    proxy_isa_schedule,
    proxy_isa_weights,
)


def slow_schedule(n, learned, k, V, tau, margin_lambda):  # noqa: N803
    beta = (V - 1) / V
    effective = (1 - beta**n) / (1 - beta)
    nu = 1 / (1 + math.log(1 + effective))
    sigma = 1 + (1 + math.exp(-tau)) * (nu - 1) / (
        1 + math.exp(V - tau - effective))
    return effective, sigma, (1 + k * (1 - learned)) * nu + margin_lambda


@given(st.integers(0, 3000), st.floats(-0.15, 1.), st.floats(0.1, 2.),
       st.floats(2., 200.), st.floats(0.1, 3.))
@settings(max_examples=60, deadline=None)
def test_the_schedule_is_the_papers(n, learned, k, V, tau):  # noqa: N803
    found = proxy_isa_schedule(
        torch.tensor([n]), torch.tensor([learned], dtype=torch.float64),
        k=k, V=V, tau=tau, margin_lambda=0.1)
    expected = slow_schedule(n, learned, k, V, tau, 0.1)
    assert [x.item() for x in found] == pytest.approx(expected, rel=1e-6)


def test_sigma_decays_from_one_to_nu_as_the_effective_number_saturates():
    counts = torch.tensor([0, 100, 400, 100_000])
    effective, sigma, _ = proxy_isa_schedule(
        counts, torch.ones(4, dtype=torch.float64))
    assert sigma[0] == 1
    assert (sigma[1:] < sigma[:-1]).all()
    nu = 1 / (1 + math.log(101))
    assert effective[-1].item() == pytest.approx(100)
    # at E = V the denominator is 1 + e^-tau, so sigma is nu exactly
    assert sigma[-1].item() == pytest.approx(nu, rel=1e-5)


def test_every_branch_of_the_weights():
    # n = 1: E = 1, nu = 1 / (1 + log 2) = 0.5906, S = 0.5,
    # eta = (1 + 0.9 / 2) nu + 0.1 = 0.9564, S_out = -0.4564
    counts, learned = torch.tensor([1, 2]), torch.tensor([.5, .5])
    nu = 1 / (1 + math.log(2))
    bound = .5 - (1.45 * nu + .1)
    own = [.6, .5, .2, bound + 1e-5, bound - 1e-5, -1.]
    similarities = torch.tensor([[s, s] for s in own])
    weights = proxy_isa_weights(
        similarities, torch.zeros(6, dtype=torch.int64), counts, learned)
    sigma = 1 + (1 + math.exp(-1.5)) * (nu - 1) / (1 + math.exp(97.5))
    assert weights.positive.tolist() == pytest.approx(
        [sigma, 1 + sigma, 1 + sigma, 1 + sigma, sigma, sigma])
    assert weights.outliers.tolist() == [False] * 4 + [True] * 2
    # class 1: n = 2, E = 1.99, S_out = 0.5 - (1.45 / (1 + log 2.99) + 0.1)
    bound = .5 - (1.45 / (1 + math.log(2.99)) + .1)
    assert weights.negative[:, 1].tolist() == pytest.approx(
        [1 if s >= bound else 1 / 1.99 for s in own])


def test_weights_carry_no_gradient():
    similarities = torch.rand(3, 2, requires_grad=True)
    weights = proxy_isa_weights(
        similarities, torch.tensor([0, 1, 1]), torch.tensor([3, 4]),
        torch.tensor([.2, .3]))
    assert not any(weight.requires_grad for weight in weights)


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r'shapes \(2,\) and \(2, 3\)'):
        proxy_isa_loss(torch.rand(2, 3), torch.tensor([0, 1]),
                       torch.ones(3), torch.ones(2, 3))


def test_an_upper_bound_of_one_is_refused():
    with pytest.raises(ValueError, match='V must be greater than 1'):
        proxy_isa_schedule(torch.tensor([1]), torch.ones(1), V=1.)
