import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from mmrank.functional import (
    adasample_probabilities,
    adasample_weights,
    hinge_triplet_loss,
    hinge_triplet_losses,
)
from mmrank.functional.triplets import draw, squared_distances

INF = float('inf')


def unit(n, d, seed=0, dtype=torch.float64):
    rows = torch.randn(n, d, dtype=dtype,
                       generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=1)


def oracle(anchors, positives, margin, distance, labels, cross_terms):
    """One pair of rows at a time, by the definition."""

    def d(x, y):
        if distance == 'euclidean':
            return (x - y).norm()
        return torch.arccos((x * y).sum())

    losses = []
    for i in range(len(anchors)):
        negatives = []
        for j in range(len(anchors)):
            if labels[i] == labels[j]:
                continue
            negatives += [d(anchors[i], anchors[j]),
                          d(positives[i], positives[j])]
            if cross_terms:
                negatives += [d(anchors[i], positives[j]),
                              d(positives[i], anchors[j])]
        if not negatives:
            losses.append((anchors + positives).sum() * 0)
            continue
        gap = d(anchors[i], positives[i])**2 - min(negatives)**2
        losses.append((margin + gap).clamp(min=0))
    return torch.stack(losses)


@pytest.mark.parametrize('distance', ['angular', 'euclidean'])
@pytest.mark.parametrize('cross_terms', [False, True])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), size=st.integers(1, 7),
       margin=st.floats(.1, 3))
def test_value_and_gradient_equal_the_definition(distance, cross_terms, seed,
                                                 size, margin):
    ends = [unit(size, 4, seed).requires_grad_(),
            unit(size, 4, seed + 1).requires_grad_()]
    labels = torch.randint(0, 4, (size,),
                           generator=torch.Generator().manual_seed(seed))
    got = hinge_triplet_losses(*ends, margin=margin, distance=distance,
                               labels=labels, cross_terms=cross_terms)
    # the angular loss normalises: so must the oracle, for its gradient
    rows = [torch.nn.functional.normalize(e, dim=1) for e in ends] \
        if distance == 'angular' else ends
    want = oracle(*rows, margin, distance, labels, cross_terms)
    torch.testing.assert_close(got, want, atol=1e-7, rtol=1e-7)
    scale = torch.arange(1., size + 1, dtype=torch.float64)
    for a, b in zip(torch.autograd.grad((got * scale).sum(), ends),
                    torch.autograd.grad((want * scale).sum(), ends)):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def test_hand_computed_value():
    a = torch.tensor([[1., 0.], [0., 1.]])
    p = torch.tensor([[0.8, 0.6], [0., 1.]])
    # positives: 0.4 and 0; the nearest negatives: |p0 - p1|^2 = 0.8 twice
    got = hinge_triplet_losses(a, p, distance='euclidean')
    torch.testing.assert_close(got, torch.tensor([0.6, 0.2]))
    weighted = hinge_triplet_loss(a, p, distance='euclidean',
                                  weights=torch.tensor([0.5, 1.5]))
    assert float(weighted) == pytest.approx((0.5 * 0.6 + 1.5 * 0.2) / 2)


@pytest.mark.parametrize('distance', ['angular', 'euclidean'])
@pytest.mark.parametrize('kind', ['equal', 'opposite', 'all equal', 'zero'])
def test_identical_or_opposite_descriptors_have_finite_gradients(
        distance, kind):
    a = unit(4, 8, dtype=torch.float32)
    p = dict(equal=a, opposite=-a, zero=a * 0).get(kind, a)
    if kind == 'all equal':
        a = p = a[:1].expand(4, -1)
    a, p = (x.clone().requires_grad_() for x in (a, p))
    loss = hinge_triplet_loss(a, p, distance=distance, margin=12.)
    loss.backward()
    assert loss.isfinite() and loss >= 0
    assert a.grad.isfinite().all() and p.grad.isfinite().all()


@pytest.mark.parametrize('distance', ['angular', 'euclidean'])
def test_near_identical_float32_descriptors_never_have_a_negative_distance(
        distance):
    a = unit(64, 128, dtype=torch.float32)
    b = torch.nn.functional.normalize(a + 1e-5 * unit(64, 128, 1).float())
    got = squared_distances(a, b, distance)
    want = squared_distances(a.double(), b.double(), distance)
    assert (got >= 0).all()
    torch.testing.assert_close(got.sqrt(), want.float().sqrt(), atol=1e-4,
                               rtol=0)
    # and so the mined negative: row i's nearest is its copy in b
    both, labels = torch.cat([a, b]), torch.arange(128)
    losses = hinge_triplet_losses(both, both, distance=distance,
                                  labels=labels)
    expected = 1 - want.float().repeat(2)
    torch.testing.assert_close(losses, expected, atol=1e-6, rtol=1e-6)


def test_triplets_of_one_class_are_no_negatives_of_each_other():
    # a 3-D point that stands in the batch more than once
    a, p = unit(8, 16), unit(8, 16, 1)
    a[3], p[3] = a[0], p[0]
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    masked = hinge_triplet_losses(a, p, labels=labels)
    want = oracle(a, p, 1., 'angular', labels, False)
    torch.testing.assert_close(masked, want)
    unmasked = hinge_triplet_losses(a, p)
    # unmasked, row 0's nearest "negative" is its own point at distance 0
    d_pos = squared_distances(a, p, 'angular')
    assert float(unmasked[0]) == pytest.approx(1 + float(d_pos[0]))
    assert masked[0] < unmasked[0]


@pytest.mark.parametrize('size', [0, 1])
def test_no_negative_gives_zero_that_is_attached(size):
    a = torch.ones(size, 4, requires_grad=True)
    loss = hinge_triplet_loss(a, a)
    assert float(loss.detach()) == 0
    loss.backward()
    assert a.grad.shape == a.shape and (a.grad == 0).all()


def test_one_class_only_gives_zero():
    a = unit(5, 4).requires_grad_()
    loss = hinge_triplet_loss(a, -a, labels=torch.zeros(5, dtype=torch.long))
    assert float(loss.detach()) == 0
    loss.backward()
    assert (a.grad == 0).all()


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_half_precision_computes_in_float32_and_returns_its_own_gradient(
        dtype):
    a = unit(6, 8).to(dtype).requires_grad_()
    p = unit(6, 8, 1).to(dtype)
    with torch.autocast('cpu', dtype=torch.bfloat16):
        loss = hinge_triplet_loss(a, p)
    loss.backward()
    assert loss.dtype == torch.float32 and a.grad.dtype == dtype
    exact = hinge_triplet_loss(a.detach().double(), p.double())
    assert float(loss.detach()) == pytest.approx(float(exact), rel=1e-5)


def test_clear_errors():
    a = torch.ones(2, 3)
    with pytest.raises(ValueError, match="distance must be one of.*'cosine'"):
        hinge_triplet_loss(a, a, distance='cosine')
    with pytest.raises(ValueError, match='one shape'):
        hinge_triplet_loss(a, a[:1])
    with pytest.raises(ValueError, match='weights must have shape'):
        hinge_triplet_loss(a, a, weights=torch.ones(3))
    with pytest.raises(ValueError, match='labels must have shape'):
        hinge_triplet_loss(a, a, labels=torch.ones(3))
    for wrong in (-1., math.nan):
        with pytest.raises(ValueError, match='exponent must be >= 0'):
            adasample_probabilities(torch.ones(3), wrong)


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
