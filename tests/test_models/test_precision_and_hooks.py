"""Every loss under mixed precision, accumulation, clipping and averaging."""

from __future__ import annotations

import pytest
import torch
from mmengine.model import ExponentialMovingAverage
from mmengine.optim import AmpOptimWrapper, OptimWrapper

from mmrank.engine import BFloat16OptimWrapper
from tests.test_distributed.test_global_batch import LOSSES, Learner, batch

# the second process, which never has a positive, has nothing
SIZES = (12, 0)


def step_through(name: str, wrap, steps: int = 6, **options):
    """Trains a learner; the optimiser wrapper decides how."""
    learner = Learner(name).float()
    optimizer = torch.optim.SGD(learner.parameters(), lr=0.05)
    wrapper = wrap(optimizer=optimizer, **options)
    wrapper.initialize_count_status(learner, 0, steps)
    for step in range(steps):
        inputs, labels = batch(name, step, SIZES)
        with wrapper.optim_context(learner):
            loss = learner(inputs.float(), labels)
        assert loss.dtype == torch.float32
        wrapper.update_params(loss)
    return learner


class ScaledOptimWrapper(OptimWrapper):
    """A loss scaler's arithmetic, which torch runs on an accelerator only."""

    scale = 65536.

    def backward(self, loss, **kwargs):
        super().backward(loss * self.scale, **kwargs)

    def step(self, **kwargs):
        for group in self.param_groups:
            for parameter in group['params']:
                parameter.grad /= self.scale
        super().step(**kwargs)


@pytest.mark.parametrize('name', LOSSES)
def test_a_loss_scale_does_not_change_the_steps(name):
    plain = step_through(name, OptimWrapper).state_dict()
    scaled = step_through(name, ScaledOptimWrapper).state_dict()
    for key, tensor in plain.items():
        torch.testing.assert_close(scaled[key], tensor, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('name', LOSSES)
def test_bfloat16_autocast_ranks_and_measures_in_float32(name):
    learner = step_through(name, BFloat16OptimWrapper)
    for tensor in learner.state_dict().values():
        assert tensor.dtype in (torch.float32, torch.int64, torch.bool)
        assert tensor.isfinite().all()


@pytest.mark.parametrize('name', LOSSES)
def test_accumulation_over_equal_batches_is_their_mean_gradient(name):
    """The blackbox strength is not divided by the number of batches."""
    learner = Learner(name).float()
    optimizer = torch.optim.SGD(learner.parameters(), lr=1.)
    wrapper = OptimWrapper(optimizer, accumulative_counts=2)
    wrapper.initialize_count_status(learner, 0, 2)
    before = learner.linear.weight.detach().clone()
    expected = torch.zeros_like(before)
    reference = Learner(name).float()
    for step in range(2):
        inputs, labels = batch(name, step, SIZES)
        with wrapper.optim_context(learner):
            wrapper.update_params(learner(inputs.float(), labels))
        loss = reference(inputs.float(), labels)
        expected += torch.autograd.grad(loss, reference.linear.weight)[0] / 2
    torch.testing.assert_close(before - learner.linear.weight, expected,
                               rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('name', LOSSES)
def test_clipping_bounds_the_step(name):
    start = Learner(name).float().linear.weight
    learner = step_through(name, OptimWrapper, clip_grad=dict(max_norm=1e-3))
    moved = (learner.linear.weight - start).norm().item()
    assert 0 < moved <= 6 * 0.05 * 1e-3 * 1.01


@pytest.mark.parametrize('update_buffers', [False, True])
@pytest.mark.parametrize('name', LOSSES)
def test_an_averaged_model_neither_feeds_nor_blends_the_state(
        name, update_buffers):
    def train(averaging: bool) -> dict:
        learner = Learner(name).float()
        average = ExponentialMovingAverage(
            learner, momentum=0.5, update_buffers=update_buffers)
        optimizer = torch.optim.SGD(learner.parameters(), lr=0.05)
        for step in range(4):
            inputs, labels = batch(name, step, SIZES)
            learner(inputs.float(), labels).backward()
            optimizer.step()
            if averaging:
                average.update_parameters(learner)
        return learner.state_dict()

    alone = train(False)
    beside = train(True)
    assert alone.keys() == beside.keys()
    for key, tensor in alone.items():
        assert torch.equal(beside[key], tensor), key


@pytest.mark.parametrize('name', LOSSES)
def test_half_precision_leaves_get_gradients_of_their_own_dtype(name):
    for dtype in (torch.float16, torch.bfloat16):
        loss = Learner(name).float().loss
        outputs = torch.randn(12, 5 if name.startswith('map') else 6)
        leaf = outputs.to(dtype).requires_grad_()
        labels = torch.arange(12) % 5
        if name.startswith('map'):
            value = loss(leaf, labels)
        elif name.startswith('triplet'):
            pairs = torch.nn.functional.normalize(leaf).unflatten(0, (-1, 2))
            value = loss(pairs[:, 0], pairs[:, 1])
        else:
            value = loss(leaf, labels, proxies=torch.randn(5, 6))
        value.backward()
        assert leaf.grad.dtype == dtype
        assert leaf.grad.isfinite().all()


def test_a_real_scaler_is_accepted_where_it_is_switched_off():
    optimizer = torch.optim.SGD(Learner('map').parameters(), lr=0.1)
    if torch.cuda.is_available():
        AmpOptimWrapper(optimizer=optimizer, loss_scale='dynamic')
    else:
        scaler = torch.amp.GradScaler('cpu') if hasattr(
            torch.amp, 'GradScaler') else torch.cuda.amp.GradScaler(
                enabled=False)
        learner = Learner('map').float()
        optimizer = torch.optim.SGD(learner.parameters(), lr=0.05)
        inputs, labels = batch('map', 0, SIZES)
        scaler.scale(learner(inputs.float(), labels)).backward()
        scaler.step(optimizer)
        scaler.update()
        plain = step_through('map', OptimWrapper, steps=1)
        torch.testing.assert_close(learner.linear.weight,
                                   plain.linear.weight)
