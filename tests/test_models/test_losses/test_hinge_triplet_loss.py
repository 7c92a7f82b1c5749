import pytest
import torch
from torch import nn

from mmrank.functional import hinge_triplet_loss
from mmrank.models import HingeTripletLoss
from mmrank.registry import MODELS


def rows(seed=0, size=6):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(
        torch.randn(size, 8, generator=generator), dim=1)


@pytest.mark.parametrize('distance', ['angular', 'euclidean'])
@pytest.mark.parametrize('cross_terms', [False, True])
def test_the_module_is_the_function(distance, cross_terms):
    loss = MODELS.build(dict(type='mmrank.HingeTripletLoss', margin=.7,
                             distance=distance, cross_terms=cross_terms,
                             loss_weight=3.))
    weights, labels = torch.rand(6), torch.tensor([0, 1, 2, 0, 3, 4])
    want = 3 * hinge_triplet_loss(
        rows(), rows(1), margin=.7, distance=distance, weights=weights,
        labels=labels, cross_terms=cross_terms)
    torch.testing.assert_close(loss(rows(), rows(1), weights, labels), want)


@pytest.mark.parametrize('backend', ['eager', 'aot_eager'])
def test_compiled_loss_has_the_same_value_and_gradient(backend):
    results = []
    for compiled in (False, True):
        module = HingeTripletLoss()
        call = torch.compile(module, backend=backend) if compiled else module
        a = rows().requires_grad_()
        value = call(a, rows(1))
        value.backward()
        results.append((value.detach(), a.grad))
    for plain, other in zip(*results):
        torch.testing.assert_close(plain, other)


def test_amp_steps_with_bfloat16_have_gradients_of_the_parameters_type():
    net, loss = nn.Linear(8, 8), HingeTripletLoss()
    for _ in range(3):
        with torch.autocast('cpu', dtype=torch.bfloat16):
            value = loss(net(rows()), net(rows(1)))
        assert value.dtype == torch.float32
        value.backward()
        assert net.weight.grad.dtype == torch.float32
        assert net.weight.grad.isfinite().all()


def test_gradient_is_linear_in_the_incoming_gradient():
    def gradient(scale):
        a = rows().requires_grad_()
        (scale * HingeTripletLoss()(a, rows(1))).backward()
        return a.grad

    for scale in (1e-4, 65536.):
        torch.testing.assert_close(gradient(scale), scale * gradient(1.))


def test_a_step_pulls_the_pair_and_pushes_the_negative():
    a, p = rows().requires_grad_(), rows(1)
    HingeTripletLoss(distance='euclidean')(a, p).backward()
    moved = (a - .05 * a.grad).detach()
    before = hinge_triplet_loss(a.detach(), p, distance='euclidean')
    assert hinge_triplet_loss(moved, p, distance='euclidean') < before


def test_the_global_mean_is_unweighted_and_zero_for_no_triplet():
    loss = HingeTripletLoss(loss_weight=3.)
    losses = loss.losses(rows(), rows(1))
    assert loss.global_mean(losses) == losses.mean()
    assert loss.global_mean(losses[:0]) == 0


def test_clear_errors():
    with pytest.raises(ValueError, match="distance must be.*'cosine'"):
        HingeTripletLoss(distance='cosine')
    with pytest.raises(ValueError, match='margin must be > 0.*-1'):
        HingeTripletLoss(margin=-1)
    with pytest.raises(ValueError, match="distributed must be.*'both'"):
        HingeTripletLoss(distributed='both')
