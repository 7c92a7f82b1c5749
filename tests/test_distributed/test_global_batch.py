"""A loss under DDP is that of the global batch, for every loss.

After ten SGD steps several processes hold the parameters and the loss's state
of one process that had the joined batches. An option leaves each process the
loss of its own batch.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from mmrank.models.losses import (
    HingeTripletLoss,
    ProxyAnchorLoss,
    ProxyISALoss,
    RaMBOLoss,
    RaMBORecallLoss,
)
from mmrank.state import current

STEPS = 10
CLASSES = 5
WIDTH = 6


class Learner(nn.Module):
    """A linear model under one of the losses."""

    def __init__(self, name: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        outputs = CLASSES if name.startswith('map') else WIDTH
        self.linear = nn.Linear(8, outputs).double()
        self.name = name
        self.loss = {
            'map': lambda: RaMBOLoss(memory_batches=0),
            'map, memory': lambda: RaMBOLoss(
                memory_batches=3, memory_in_cross_class=True),
            'map, bounded memory': lambda: RaMBOLoss(
                memory_batches=3, memory_negatives=2),
            'recall': lambda: RaMBORecallLoss(memory_batches=0),
            'recall, memory': lambda: RaMBORecallLoss(
                memory_batches=2, weighting='loglog'),
            'proxy-anchor': ProxyAnchorLoss,
            'proxy-isa': lambda: ProxyISALoss(
                CLASSES, WIDTH, memory_size=17, queue_start=1,
                weighting_start=3, by_epoch=False),
            'triplet': HingeTripletLoss,
            'triplet, euclidean': lambda: HingeTripletLoss(
                distance='euclidean', cross_terms=True),
        }[name]().double()
        if getattr(self.loss, 'needs_proxies', False):
            self.proxies = nn.Parameter(
                torch.randn(CLASSES, WIDTH, dtype=torch.float64))

    def own_batch_only(self) -> Learner:
        """Itself, with the losses of the processes apart."""
        self.loss.distributed = 'local'
        return self

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        outputs = self.linear(inputs)
        if self.name.startswith('map'):
            return self.loss(outputs, labels)
        if self.name.startswith('triplet'):
            pairs = F.normalize(outputs).unflatten(0, (-1, 2))
            return self.loss(pairs[:, 0], pairs[:, 1])
        return self.loss(
            outputs, labels, proxies=getattr(self, 'proxies', None))


def batch(name: str, step: int, sizes: tuple[int, ...]) -> tuple:
    """The joined batch of a step, and each process's share of it."""
    generator = torch.Generator().manual_seed(step)
    total = sum(sizes)
    inputs = torch.randn(total, 8, generator=generator, dtype=torch.float64)
    highest = CLASSES + 1 if name.startswith('map') else CLASSES
    labels = torch.randint(highest, (total, ), generator=generator)
    if name.startswith('map'):
        # the last process never has a positive
        labels[total - sizes[-1]:] = CLASSES
    return inputs, labels


def train(name: str, sizes: tuple[int, ...], together: bool) -> dict:
    learner = Learner(name)
    model = DistributedDataParallel(learner) if together else learner
    # momentum would hide nothing, but grow a difference
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    values = []
    for step in range(STEPS):
        inputs, labels = batch(name, step, sizes)
        if together:
            mine = current().index
            inputs, labels = (
                part.split(sizes)[mine] for part in (inputs, labels))
        optimizer.zero_grad()
        loss = model(inputs, labels)
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    state = {
        key: tensor.clone() for key, tensor in learner.state_dict().items()}
    return dict(values=torch.tensor(values), **state)


LOSSES = ('map', 'map, memory', 'map, bounded memory', 'recall',
          'recall, memory', 'proxy-anchor', 'proxy-isa', 'triplet',
          'triplet, euclidean')


@pytest.mark.parametrize('sizes', [(6, 6), (8, 2), (4, 0),
                                   (4, 6, 0, 2)],
                         ids=lambda sizes: '-'.join(map(str, sizes)))
@pytest.mark.parametrize('name', LOSSES)
def test_processes_hold_what_one_process_holds(processes, name, sizes):
    expected = train(name, sizes, together=False)
    start = Learner(name).state_dict()['linear.weight']
    assert not torch.equal(expected['linear.weight'], start)
    for found in processes(len(sizes)).run(train, name, sizes, True):
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            torch.testing.assert_close(
                found[key], tensor, rtol=1e-5, atol=1e-5,
                msg=lambda text, key=key: f'{key}: {text}')


def one_local_step(name: str, sizes: tuple[int, ...]) -> tuple:
    learner = Learner(name).own_batch_only()
    model = DistributedDataParallel(learner)
    parts = [part.split(sizes)[current().index]
             for part in batch(name, 0, sizes)]
    loss = model(*parts)
    loss.backward()
    return loss.item(), learner.linear.weight.grad


@pytest.mark.parametrize('sizes', [(6, 6), (8, 2), (4, 0)],
                         ids=lambda sizes: '-'.join(map(str, sizes)))
@pytest.mark.parametrize('name', LOSSES)
def test_a_local_loss_is_that_of_each_processs_own_batch(
        processes, name, sizes):
    parts = [part.split(sizes) for part in batch(name, 0, sizes)]
    values, gradients = [], []
    for own in zip(*parts):
        learner = Learner(name)  # one that remembers nothing yet
        loss = learner(*own)
        loss.backward()
        values.append(loss.item())
        gradients.append(learner.linear.weight.grad)
    for index, (value, gradient) in enumerate(
            processes(2).run(one_local_step, name, sizes)):
        assert value == pytest.approx(values[index], abs=1e-9)
        torch.testing.assert_close(gradient, sum(gradients) / 2)
