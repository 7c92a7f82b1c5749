"""Watches whether descriptors still tell anything apart."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor

from mmrank.registry import HOOKS

from ..bare_model import bare_model

REMEDY = (
    'Start again with AdaSample(hard_below=...) at the margin of the loss, a '
    'smaller lambda_val or a lower learning rate, in this order, and with '
    'milder patches if all three collapse; a collapsed network rarely '
    'recovers.')


@HOOKS.register_module()
class DescriptorCollapseHook(Hook):
    """Logs how far descriptors spread, and warns once when they collapse.

    A collapsed network describes every patch by nearly the same line: its
    loss rests above the margin, where the nearest non-pair is nearer than the
    pair, and most of the variance is in one direction. Every ``interval``
    iterations the numbers of :func:`descriptor_spread`, of this process's
    batch, go to the log as ``pair_ratio``, ``non_pair_distance`` and
    ``first_component``.

    Args:
        interval (int): iterations between two measurements, >= 1. Others cost
            nothing, and do not wait for the device.
        max_component (float): share of the variance in the first principal
            component, in (0, 1], above which the run is called collapsed.
        patience (int): measurements in a row above it before the warning.

    Raises:
        ValueError: for a value out of range; before training for a model that
            is no :class:`DescriptorLearner`.

    Example:
        >>> custom_hooks = [
        ...     dict(type='mmrank.DescriptorCollapseHook', interval=100)]
    """

    # before LoggerHook, which writes what is measured here
    priority = 'NORMAL'

    def __init__(self,
                 interval: int = 50,
                 max_component: float = 0.5,
                 patience: int = 2) -> None:
        for name, value in dict(interval=interval, patience=patience).items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(
                    f'{name} must be an integer >= 1, but got {value!r}')
        if not 0 < max_component <= 1:
            raise ValueError('max_component must lie in (0, 1], but got '
                             f'{max_component!r}')
        self.interval = interval
        self.max_component = max_component
        self.patience = patience
        self._above = 0

    def before_train(self, runner: Runner) -> None:
        """Refuse a model that hands out no pairs."""
        model = bare_model(runner)
        if not hasattr(model, 'pairs'):
            raise ValueError(
                'DescriptorCollapseHook watches a DescriptorLearner, but the '
                f'model is a {type(model).__name__}; take the hook out of '
                'custom_hooks')

    def after_train_iter(self,
                         runner: Runner,
                         batch_idx: int,
                         data_batch: Any = None,
                         outputs: Any = None) -> None:
        """Measure, log, and warn where it is time to."""
        if not self.every_n_train_iters(runner, self.interval):
            return
        pairs = bare_model(runner).pairs
        if pairs is None or not len(pairs.labels):
            return
        numbers = descriptor_spread(*pairs)
        for name, value in numbers.items():
            # the log shows the latest, not a mean over ten measurements
            runner.message_hub.log_scalars.pop(f'train/{name}', None)
            runner.message_hub.update_scalar(f'train/{name}', value)
        self._judge(runner, numbers)

    def _judge(self, runner: Runner, numbers: dict[str, float]) -> None:
        collapsed = numbers['first_component'] > self.max_component
        self._above = self._above + 1 if collapsed else 0
        if self._above != self.patience:
            return
        self._above += 1  # once a collapse
        runner.logger.warning(
            f'The descriptors collapse: {numbers["first_component"]:.0%} of '
            'their variance is in one direction (more than max_component='
            f'{self.max_component:g}), and non-pairs are '
            f'{numbers["non_pair_distance"]:.2f} apart, where 1.41 is free '
            f'of any. {REMEDY}')


@torch.no_grad()
def descriptor_spread(anchors: Tensor, positives: Tensor,
                      labels: Tensor) -> dict[str, float]:
    """How far the descriptors of a batch of pairs spread.

    Args:
        anchors (Tensor): descriptors of unit length, shape (B, D).
        positives (Tensor): shape (B, D); row i matches row i of ``anchors``.
        labels (Tensor): class ids, shape (B,).

    Returns:
        dict[str, float]: ``non_pair_distance``, the mean Euclidean distance
        of anchors to positives of other classes (1.41 for independent
        directions); ``pair_ratio``, that of pairs over it; and
        ``first_component``, the share of the variance in the first principal
        component, between about 1 / min(2 B, D) and 1. All 0 where there is
        no non-pair or no variance.

    Cost: O(B^2 D) for the distances and O(D^2 (B + D)) for the spectrum.

    Example:
        >>> import torch
        >>> a = torch.tensor([[1., 0.], [0., 1.]])
        >>> numbers = descriptor_spread(a, a, torch.tensor([0, 1]))
        >>> numbers['pair_ratio'], round(numbers['first_component'], 4)
        (0.0, 1.0)
    """
    anchors, positives = anchors.float(), positives.float()
    table = torch.cdist(anchors, positives)
    others = labels[:, None] != labels
    apart = (table * others).sum() / others.sum().clamp_min(1)
    pairs = (anchors - positives).norm(dim=1).mean()
    rows = torch.cat([anchors, positives])
    rows = rows - rows.mean(0)
    spectrum = torch.linalg.eigvalsh(rows.t() @ rows)
    tiny = torch.finfo(torch.float32).tiny
    # one copy to the host for the three
    numbers = torch.stack([
        pairs / apart.clamp_min(tiny), apart,
        spectrum[-1] / spectrum.sum().clamp_min(tiny)
    ]).tolist()
    return dict(zip(
        ('pair_ratio', 'non_pair_distance', 'first_component'), numbers))
