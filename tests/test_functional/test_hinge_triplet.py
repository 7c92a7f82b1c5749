
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mmrank.functional import (
    hinge_triplet_loss,
    hinge_triplet_losses,
    squared_distances,
)

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
