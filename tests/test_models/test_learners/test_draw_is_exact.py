"""Over 10,000 draws AdaSample does what Eq. 13 says, and nothing else."""

import pytest
import torch
from scipy import stats

from mmrank.models import AdaSample

DRAWS, SLOTS, VALID = 10_000, 6, 5


def one_class(width=4, seed=0):
    """Descriptors of one class, its last slot padding."""
    rows = torch.randn(SLOTS, width, dtype=torch.float64,
                       generator=torch.Generator().manual_seed(seed))
    return rows / rows.norm(dim=1, keepdim=True)


def draws(rows, lambda_val, average, seed):
    """A batch of the same class 10,000 times: independent draws."""
    sampler = AdaSample(lambda_val, momentum=0., distance='euclidean',
                        seed=seed)
    sampler.update(torch.tensor(average))
    valid = torch.arange(SLOTS) < VALID
    return sampler(rows.expand(DRAWS, -1, -1), valid.expand(DRAWS, -1))


def distances(rows):
    return (rows[:, None] - rows).norm(dim=2)[:VALID, :VALID]


def joint(rows, exponent):
    """P(anchor, positive) by the letter of Eq. 13: anchors are uniform."""
    powers = distances(rows).pow(exponent).fill_diagonal_(0)
    return powers / powers.sum(1, keepdim=True) / VALID


@pytest.mark.parametrize('average', [.5, 1.4])
@pytest.mark.parametrize('lambda_val', [1., 2., 5., 10.])
def test_drawn_slots_pass_a_chi_square_test_against_equation_13(
        lambda_val, average):
    rows = one_class()
    chosen = draws(rows, lambda_val, average, seed=0)
    table = torch.zeros(SLOTS, SLOTS, dtype=torch.float64).index_put_(
        (chosen.anchor, chosen.positive),
        torch.tensor(1., dtype=torch.float64), accumulate=True)
    assert table[VALID:].sum() == table[:, VALID:].sum() == 0  # padding
    assert table.diagonal().sum() == 0
    seen = table[:VALID, :VALID].flatten()
    expected = joint(rows, lambda_val / average).flatten() * DRAWS
    # the test's approximation wants 5 expected in a cell: rarer ones are one
    rare = expected < 5
    seen, expected = (torch.cat([x[~rare], x[rare].sum()[None]])
                      for x in (seen, expected))
    keep = expected > 0
    assert stats.chisquare(seen[keep], expected[keep]).pvalue > 1e-3


def pair_gradients(patches, theta):
    """d/d theta of the squared distance of every pair, (k, k, D, P)."""
    differences = (patches[:, None] - patches)[:VALID, :VALID]
    projected = differences @ theta.T
    return 2 * projected[..., :, None] * differences[..., None, :]


@pytest.mark.parametrize('lambda_val', [2., 10.])
def test_the_weighted_gradient_is_unbiased_to_monte_carlo_error(lambda_val):
    """The mean of w g over draws is E[g / d] / E[1 / d] under Eq. 13.

    The weights have mean 1 over the batch, so this is a ratio of means; its
    standard error is that of w (g - expectation).
    """
    generator = torch.Generator().manual_seed(3)
    patches = torch.randn(SLOTS, 5, dtype=torch.float64, generator=generator)
    theta = torch.randn(3, 5, dtype=torch.float64, generator=generator)
    rows = patches @ theta.T
    gradients = pair_gradients(patches, theta)
    inverse = 1 / distances(rows).fill_diagonal_(torch.inf)
    mass = joint(rows, lambda_val) * inverse
    expected = (mass[..., None, None] * gradients).sum((0, 1)) / mass.sum()
    chosen = draws(rows, lambda_val, 1., seed=1)
    weighted = chosen.weights.double()[:, None, None] * (
        gradients[chosen.anchor, chosen.positive])
    spread = weighted - chosen.weights.double()[:, None, None] * expected
    error = spread.std(0) / DRAWS**.5
    assert ((weighted.mean(0) - expected).abs() < 4 * error).all()
    # and the test would see a bias: drawing without weights is far outside
    unweighted = gradients[chosen.anchor, chosen.positive].mean(0)
    assert ((unweighted - expected).abs() > 4 * error).any()
