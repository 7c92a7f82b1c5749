import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mmrank.functional import (
    adasample_probabilities,
    adasample_weights,
    draw,
)

INF = float('inf')


# ------------------------------------------------------------ the positives
@pytest.mark.parametrize('exponent', [0., .5, 1., 10., 1e3, 1e6])
def test_probabilities_follow_the_power_of_the_distance(exponent):
    d = torch.tensor([.31, .7, .7000001, 1.2, 1.2 - 1e-6],
                     dtype=torch.float64)
    got = adasample_probabilities(d, exponent)
    logs = [exponent * math.log(x) for x in d.tolist()]
    powers = [math.exp(x - max(logs)) for x in logs]
    want = torch.tensor(powers, dtype=torch.float64) / sum(powers)
    torch.testing.assert_close(got, want, rtol=1e-7, atol=1e-12)
    assert got.isfinite().all() and float(got.sum()) == pytest.approx(1)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 3.2), min_size=1, max_size=8),
       st.one_of(st.floats(0, 1e6), st.just(INF)))
def test_probabilities_are_finite_and_sum_to_one(distances, exponent):
    got = adasample_probabilities(torch.tensor(distances), exponent)
    assert got.isfinite().all() and (got >= 0).all()
    assert float(got.sum()) == pytest.approx(1, abs=1e-5)


def test_exponent_zero_is_uniform_even_over_zero_distances():
    got = adasample_probabilities(torch.tensor([0., 1., 2., 0.]), 0)
    torch.testing.assert_close(got, torch.full((4,), .25))


def test_infinite_exponent_takes_the_hardest_and_shares_exact_ties():
    d = torch.tensor([[1., 3., 2.], [2., 2., 1.]])
    want = torch.tensor([[0., 1., 0.], [.5, .5, 0.]])
    assert torch.equal(adasample_probabilities(d, INF), want)


@pytest.mark.parametrize('exponent', [1., 1e6, INF])
def test_zero_distances_are_never_drawn_unless_all_are_zero(exponent):
    d = torch.tensor([[0., 1., 0.], [0., 0., 0.]])
    got = adasample_probabilities(d, exponent)
    want = torch.tensor([[0., 1., 0.], [1 / 3] * 3])
    torch.testing.assert_close(got, want)


def test_masked_candidates_are_as_if_absent():
    d = torch.tensor([[9., 1., 2.], [0., 0., 0.]])
    mask = torch.tensor([[False, True, True], [True, False, True]])
    got = adasample_probabilities(d, 1., mask=mask)
    torch.testing.assert_close(
        got, torch.tensor([[0., 1 / 3, 2 / 3], [.5, 0., .5]]))
    nothing = adasample_probabilities(d, 1., mask=mask & False)
    assert (nothing == 0).all()
    assert adasample_probabilities(torch.zeros(2, 0), 1.).shape == (2, 0)


def test_exponent_may_be_a_tensor():
    d = torch.tensor([1., 2.])
    exponents = torch.tensor([[0.], [1.], [INF]])
    got = adasample_probabilities(d, exponents)
    want = torch.tensor([[.5, .5], [1 / 3, 2 / 3], [0., 1.]])
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize('exponent', [0., 1., 8., 40., 1e6])
def test_sampling_frequencies_pass_a_chi_square_test(exponent):
    d = torch.tensor([.2, .5, .9, 1.3, 1.31])
    p = adasample_probabilities(d, exponent)
    draws = 40000
    uniforms = torch.rand(draws, dtype=torch.float64)
    counts = torch.bincount(draw(p.expand(draws, -1), uniforms), minlength=5)
    expected = p.double() / p.double().sum() * draws
    # the test's approximation wants at least 5 expected in a cell
    enough = expected >= 5
    assert counts[~enough].sum() <= 20
    if enough.sum() > 1:
        seen = counts[enough].double()
        share = expected[enough] / expected[enough].sum() * seen.sum()
        assert stats.chisquare(seen, share).pvalue > 1e-3


def test_draw_never_returns_an_impossible_index():
    p = torch.tensor([[0., .5, 0., .5, 0.]])
    for u, want in ((0., 1), (.49, 1), (.5, 3), (1 - 2**-53, 3)):
        got = draw(p, torch.tensor([u], dtype=torch.float64))
        assert int(got) == want


def test_weights_have_mean_one_and_survive_zero_distances():
    d = torch.tensor([1., .5, .25])
    torch.testing.assert_close(adasample_weights(d),
                               torch.tensor([3., 6., 12.]) / 7)
    w = adasample_weights(torch.tensor([0., 1., 1.]))
    assert w.isfinite().all() and float(w.mean()) == pytest.approx(1)
    assert adasample_weights(torch.zeros(0)).shape == (0,)


def test_weighted_gradient_is_an_unbiased_estimate_of_equation_10():
    """By enumeration of every draw, for a fixed network.

    With p_i = d_i^(2a-1) / Z and w_i = 1 / d_i, and the paper's stand-in of
    the loss by the squared distance, E[w grad d^2] is Z^-1 sum_i
    d_i^(2a-2) grad(d_i^2), which is (K / (a Z)) times Eq. 10's
    (1/K) sum_i grad((d_i^2)^a).
    """
    candidates, alpha = 5, 3.5
    theta = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    patches = torch.randn(candidates, 4, dtype=torch.float64)
    anchor = torch.randn(4, dtype=torch.float64)

    def losses():
        return ((patches - anchor) @ theta.T).square().sum(1)

    d = losses().detach().sqrt()
    p = adasample_probabilities(d, 2 * alpha - 1)
    w = adasample_weights(d, normalize=False)
    expected = 0
    for i in range(candidates):
        gradient, = torch.autograd.grad(losses()[i], theta)
        expected = expected + p[i] * w[i] * gradient
    actual, = torch.autograd.grad(losses().pow(alpha).mean(), theta)
    z = d.pow(2 * alpha - 1).sum()
    torch.testing.assert_close(expected, actual * candidates / (alpha * z))


@pytest.mark.parametrize('wrong', [-1., math.nan])
def test_an_exponent_that_is_no_number_from_zero_on_is_refused(wrong):
    with pytest.raises(ValueError, match='exponent must be >= 0'):
        adasample_probabilities(torch.ones(3), wrong)
