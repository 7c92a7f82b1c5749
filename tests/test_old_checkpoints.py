"""Checkpoints of an earlier version load, and training goes on bit by bit.

``tests/data/<case>.pth`` holds what commit 0cafef1 did: the state of a module
after some steps, the inputs of the next ones, their losses and gradients, and
the state after them. It was written in a checkout of that commit, with this
file copied into its ``tests``, by ``python -m tests.test_old_checkpoints``,
which keeps the files that are there. What must stay bit by bit is the
arithmetic of one machine, so both stacks read the same files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mmrank.models import DescriptorLearner, MetricLearningHead
from mmrank.models.losses import RaMBOLoss, RaMBORecallLoss

DATA = Path(__file__).parent / 'data'
Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A module with a state, and what it is called with in training.

    The gradient is that of the first input. ``warm`` changes the module once
    before its first step; ``extra`` reads more of it, to be compared too.
    What is loaded is equal; what follows is too, but for products of matrices,
    which processors and versions of torch add up in different orders.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    warm: Callable[[Any], None] = lambda module: None
    extra: Callable[[Any, Inputs], Any] = lambda module, inputs: None
    rtol: float = 0.
    atol: float = 0.


def scored(n: int = 24, classes: int = 3) -> Inputs:
    """Logits with a few ties, labels with background and ignored ones."""
    return ((torch.randn(n, classes) * 4).round() / 4,
            torch.randint(-1, classes + 1, (n, )), torch.rand(n).round())


def calibrate(loss: RaMBOLoss) -> None:
    loss.calibration.scale.fill_(1.7)
    loss.calibration.bias.fill_(-0.3)


def embedded(n: int = 12) -> Inputs:
    return torch.randn(n, 5, dtype=torch.float64), torch.arange(n) % 3


class Embedded(nn.Module):
    """A head, called with features and labels as a learner calls it."""

    def __init__(self, **loss: Any) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.head = MetricLearningHead(5, 4, loss, num_classes=3).double()

    def forward(self, feats: Tensor, labels: Tensor) -> Tensor:
        loss: Tensor = self.head.loss_module(
            self.head(feats), labels, proxies=self.head.proxies)
        return loss


class Described(nn.Module):
    """A descriptor learner, called with patches and which of them there are.
    """

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.learner = DescriptorLearner(
            dict(type='mmrank.L2Net', widths=(2, 2, 2), out_channels=4),
            dict(type='mmrank.HingeTripletLoss'),
            dict(type='mmrank.AdaSample'), symmetries=True)

    def forward(self, patches: Tensor, valid: Tensor) -> Tensor:
        samples = [dict(class_index=i, class_id=i, valid=row)
                   for i, row in enumerate(valid)]
        loss: Tensor = self.learner(patches, samples, mode='loss')['loss']
        return loss


CASES = {
    'rambo': Case(
        lambda: RaMBOLoss(lambda_val=5., memory_batches=2, num_classes=3),
        scored, calibrate,
        lambda loss, inputs: loss.get_activation(inputs[0])),
    'rambo_dense': Case(
        lambda: RaMBOLoss(lambda_val=5., memory_batches=3, loss_weight=2.,
                          memory_negatives=4, memory_in_cross_class=True,
                          random_margin=True),
        lambda: scored(60), calibrate,
        lambda loss, inputs: loss.get_accuracy(*inputs[:2])),
    # the only memory that the old version knew, and had no name for
    'recall': Case(
        lambda: RaMBORecallLoss(lambda_val=4., memory_batches=2,
                                warmup_iters=1, memory='embeddings'),
        embedded, rtol=1e-9, atol=1e-12),
    'proxy_isa': Case(
        lambda: Embedded(type='mmrank.ProxyISALoss', memory_size=17,
                         queue_start=1, weighting_start=3, by_epoch=False),
        embedded, extra=lambda module, inputs:
        module.head.loss_module.statistics(), rtol=1e-6, atol=1e-8),
    'descriptor_adasample': Case(
        Described, lambda: (torch.rand(4, 3, 1, 8, 8),
                            torch.ones(4, 3, dtype=torch.bool)),
        rtol=1e-3, atol=1e-5),
}


def steps(case: Case, module: nn.Module,
          batches: list[Inputs]) -> Iterator[dict[str, Any]]:
    """What each training step yields."""
    for number, (first, *rest) in enumerate(batches):
        torch.manual_seed(number)
        first = first.detach().clone().requires_grad_()
        loss = module(first, *rest)
        loss.backward()
        yield dict(loss=loss.detach(), gradient=first.grad,
                   extra=case.extra(module, (first.detach(), *rest)))


def write(name: str, case: Case) -> None:
    torch.manual_seed(0)
    module = case.build()
    case.warm(module)
    for _ in steps(case, module, [case.inputs() for _ in range(4)]):
        pass
    before = clone(module.state_dict())
    torch.manual_seed(1)
    batches = [case.inputs() for _ in range(2)]
    done = list(steps(case, module, batches))
    torch.save(dict(before=before, batches=batches, steps=done,
                    after=clone(module.state_dict())), DATA / f'{name}.pth')


def clone(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in state.items()}


def equal(first: Any, second: Any, rtol: float = 0.,
          atol: float = 0.) -> None:
    torch.testing.assert_close(first, second, rtol=rtol, atol=atol,
                               equal_nan=True)


@pytest.mark.parametrize('name', CASES)
def test_an_old_checkpoint_loads_and_resumes_bit_by_bit(name: str) -> None:
    case = CASES[name]
    old = torch.load(DATA / f'{name}.pth', weights_only=True)
    module = case.build()
    # strictly: no key is missing and none is left over
    module.load_state_dict(clone(old['before']))
    equal(dict(module.state_dict()), old['before'])
    for now, then in zip(steps(case, module, old['batches']), old['steps'],
                         strict=True):
        equal(now, then, case.rtol, case.atol)
    equal(dict(module.state_dict()), old['after'], case.rtol, case.atol)


@pytest.mark.parametrize('name', CASES)
def test_an_old_checkpoint_has_a_state_worth_resuming(name: str) -> None:
    old = torch.load(DATA / f'{name}.pth', weights_only=True)
    assert any(step['gradient'].any() for step in old['steps'])
    changed = [key for key, value in old['after'].items()
               if not torch.equal(value, old['before'][key])]
    assert changed
    assert (DATA / f'{name}.pth').stat().st_size < 50_000


if __name__ == '__main__':
    DATA.mkdir(exist_ok=True)
    for each in CASES:
        if not (DATA / f'{each}.pth').exists():
            write(each, CASES[each])
