import pytest
import torch
from scipy import stats

from mmrank.functional import adasample_probabilities
from mmrank.models import AdaSample

INF = float('inf')


def descriptors(n=6, k=5, d=8, seed=0):
    rows = torch.randn(n, k, d,
                       generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=2)


def all_valid(n=6, k=5):
    return torch.ones(n, k, dtype=torch.bool)


def angles(rows, anchor):
    own = rows[torch.arange(len(rows)), anchor]
    cosine = (rows.double() * own[:, None].double()).sum(2)
    return torch.arccos(cosine.clamp(-1, 1))


def test_the_anchor_is_never_its_own_positive():
    for value in (0., 10., INF):
        sampler = AdaSample(value)
        for _ in range(20):
            chosen = sampler(descriptors(), all_valid())
            assert (chosen.anchor != chosen.positive).all()
            sampler.update(torch.tensor(1.))


def test_infinite_lambda_takes_the_hardest_positive_unweighted():
    rows = descriptors()
    chosen = AdaSample(INF)(rows, all_valid())
    d = angles(rows, chosen.anchor)
    assert torch.equal(chosen.positive, d.argmax(1))
    assert chosen.weights is None


def test_lambda_zero_is_uniform_needs_no_descriptors_and_is_unweighted():
    sampler = AdaSample(0)
    assert not sampler.needs_descriptors
    anchors, positives = [], []
    for _ in range(400):
        chosen = sampler(None, all_valid(20, 4))
        assert chosen.weights is None
        anchors.append(chosen.anchor)
        positives.append(chosen.positive)
        sampler.update(torch.tensor(1.))
    counts = torch.zeros(4, 4).index_put_(
        (torch.cat(anchors), torch.cat(positives)), torch.tensor(1.),
        accumulate=True)
    assert (counts.diagonal() == 0).all()
    off = counts[~torch.eye(4, dtype=torch.bool)]
    assert stats.chisquare(off.numpy()).pvalue > 1e-3


def test_frequencies_of_positives_follow_equation_13():
    n, steps = 2000, 20
    rows = descriptors(1, 5).expand(n, -1, -1)
    sampler = AdaSample(lambda_val=6., momentum=0.)
    sampler.update(torch.tensor(2.))
    counts = torch.zeros(5, 5)
    for _ in range(steps):
        chosen = sampler(rows, all_valid(n, 5))
        counts.index_put_((chosen.anchor, chosen.positive),
                          torch.tensor(1.), accumulate=True)
        sampler.update(torch.tensor(2.))
    for anchor in range(5):
        d = angles(rows[:1], torch.tensor([anchor]))[0]
        others = torch.arange(5) != anchor
        p = adasample_probabilities(d, 3., mask=others)[others].double()
        seen = counts[anchor][others].double()
        expected = p / p.sum() * seen.sum()
        assert stats.chisquare(seen, expected).pvalue > 1e-3


def test_weights_are_the_inverse_distance_with_mean_one():
    rows = descriptors()
    chosen = AdaSample(10.)(rows, all_valid())
    d = angles(rows, chosen.anchor)[torch.arange(6), chosen.positive]
    want = 1 / d / (1 / d).mean()
    torch.testing.assert_close(chosen.weights.double(), want, rtol=1e-4,
                               atol=1e-5)


def test_points_of_two_and_of_five_patches_are_both_sampled_from_their_own():
    valid = all_valid(2, 5)
    valid[0, 2:] = False
    sampler = AdaSample(1.)
    slots = [set(), set()]
    for _ in range(200):
        chosen = sampler(descriptors(2), valid)
        for row in range(2):
            slots[row] |= {int(chosen.anchor[row]), int(chosen.positive[row])}
        sampler.update(torch.tensor(1.))
    assert slots == [{0, 1}, {0, 1, 2, 3, 4}]


def test_identical_patches_of_a_class_are_finite():
    rows = descriptors()[:, :1].expand(-1, 5, -1)
    for value in (0., 10., INF):
        chosen = AdaSample(value, reweight=True)(rows, all_valid())
        assert (chosen.anchor != chosen.positive).all()
        torch.testing.assert_close(chosen.weights, torch.ones(6))


def test_L_avg_is_a_moving_average_that_starts_at_the_first_loss():  # noqa: N802
    sampler = AdaSample(10., momentum=.9)
    assert float(sampler.exponent()) == 10  # before any loss, 1 stands in
    sampler.update(torch.tensor(2.))
    assert float(sampler.L_avg) == 2
    sampler.update(torch.tensor(1.))
    assert float(sampler.L_avg) == pytest.approx(1.9)
    assert float(sampler.exponent()) == pytest.approx(10 / 1.9)
    sampler.L_avg.zero_()
    assert float(sampler.exponent()) == INF
    assert float(AdaSample(0).exponent()) == 0


@pytest.mark.parametrize('value', [10., INF])
def test_draws_are_uniform_until_the_loss_is_below_hard_below(value):
    sampler = AdaSample(value, momentum=0., hard_below=1.)
    assert float(sampler.exponent()) == 0  # before any loss, 1 stands in
    for loss, want in ((1.4, 0.), (1., 0.), (.5, value / .5), (1.1, 0.)):
        sampler.update(torch.tensor(loss))
        assert float(sampler.exponent()) == want
    assert sampler(descriptors(), all_valid()).exponent == 0


def test_a_resumed_sampler_draws_what_the_uninterrupted_one_does():
    def steps(sampler, start, stop):
        found = []
        for step in range(start, stop):
            found.append(sampler(descriptors(seed=step), all_valid()))
            sampler.update(torch.tensor(1. + step))
        return found

    straight = steps(AdaSample(10.), 0, 10)
    first = AdaSample(10.)
    steps(first, 0, 5)
    torch.manual_seed(123)  # the global generator plays no part
    second = AdaSample(10.)
    second.load_state_dict(first.state_dict())
    for a, b in zip(straight[5:], steps(second, 5, 10)):
        for x, y in zip(a, b):
            assert torch.equal(x, y)


def test_the_seed_and_the_step_change_the_draw():
    def draws(sampler):
        return torch.cat(sampler(None, all_valid(64))[:2])

    first, second = AdaSample(0), AdaSample(0, seed=1)
    one = draws(first)
    assert torch.equal(one, draws(AdaSample(0)))
    assert not torch.equal(one, draws(second))
    first.update(torch.tensor(1.))
    assert not torch.equal(one, draws(first))


def test_no_classes_give_an_empty_selection():
    chosen = AdaSample(10.)(descriptors(0), all_valid(0))
    assert chosen.anchor.shape == chosen.weights.shape == (0,)


def test_online_descriptors_come_in_chunks_without_gradient():
    sampler = AdaSample(1., chunk_size=4)
    patches = torch.randn(3, 5, 1, 2, 2, requires_grad=True)
    sizes = []

    def describe(part):
        sizes.append(len(part))
        return part.flatten(1)

    rows = sampler.descriptors(patches, torch.arange(3), describe)
    assert sizes == [4, 4, 4, 3] and not rows.requires_grad
    assert torch.equal(rows, patches.detach().flatten(2))


def test_bank_descriptors_are_looked_up_by_class():
    sampler = AdaSample(1., mode='bank')
    with pytest.raises(ValueError, match='DescriptorBankHook'):
        sampler.descriptors(None, torch.tensor([0]), None)
    bank = descriptors(4)
    sampler.set_bank(bank)
    rows = sampler.descriptors(None, torch.tensor([2, 0]), None)
    assert torch.equal(rows, bank[[2, 0]])
    assert set(sampler.state_dict()) == {'L_avg', 'step'}


def test_clear_errors():
    with pytest.raises(ValueError, match='lambda_val must be >= 0.*-1'):
        AdaSample(-1)
    with pytest.raises(ValueError, match="mode must be one of.*'offline'"):
        AdaSample(mode='offline')
    with pytest.raises(ValueError, match='hard_below must be > 0.*-1'):
        AdaSample(hard_below=-1)
    with pytest.raises(ValueError, match='momentum must lie in'):
        AdaSample(momentum=1.)
    lonely = all_valid()
    lonely[2, 1:] = False
    with pytest.raises(ValueError, match='at least 2 patches a class.* 1'):
        AdaSample()(descriptors(), lonely)
