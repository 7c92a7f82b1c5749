from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.model import is_model_wrapper
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import nn

from mmrank.registry import HOOKS


@HOOKS.register_module()
class HeadWarmupHook(Hook):
    """In the first epochs, only the head and its proxies learn.

    All parameters stay in the graph: freezing them by ``requires_grad`` would
    leave DDP waiting for gradients, or, done before the wrapping, would keep
    them out of DDP for good. Instead the gradient of a resting parameter is
    zero in the backward pass, so it counts for no clipping by norm and no
    overflow check, and is removed right before the optimiser's step, which
    then leaves the parameter and its moments alone, weight decay included.

    Which parameters rest follows from the epoch or iteration alone, so a
    resumed run goes on as an uninterrupted one.

    Args:
        epochs (int): how many epochs, or iterations with ``by_epoch=False``;
            the papers' "warm". 0 does nothing.
        trainable (Sequence[str]): prefixes of the names of the modules or
            parameters that learn.
        by_epoch (bool): what ``epochs`` counts.

    Raises:
        ValueError: if ``epochs`` is negative; before training if a prefix
            fits no parameter.
    """

    # before anything that looks at gradients
    priority = 'HIGH'

    def __init__(self,
                 epochs: int,
                 trainable: Sequence[str] = ('head', ),
                 by_epoch: bool = True) -> None:
        if not isinstance(epochs, int) or epochs < 0:
            raise ValueError(
                f'epochs must be an integer >= 0, but got {epochs!r}')
        self.epochs = epochs
        self.trainable = (trainable, ) if isinstance(trainable, str) \
            else tuple(trainable)
        self.by_epoch = by_epoch
        self._handles: list[Any] = []
        self._resting: list[nn.Parameter] = []

    def before_train(self, runner: Runner) -> None:
        """Find the parameters that rest."""
        model = runner.model
        if is_model_wrapper(model):
            model = model.module
        named = dict(model.named_parameters())
        learning: set[str] = set()
        for prefix in self.trainable:
            found = {
                name
                for name in named
                if name == prefix or name.startswith(f'{prefix}.')
            }
            if not found:
                raise ValueError(
                    f'trainable={self.trainable} of HeadWarmupHook: no '
                    f'parameter is called {prefix!r} or lies in it; the '
                    f'model has {sorted({n.split(".")[0] for n in named})}')
            learning |= found
        self._resting = [
            parameter for name, parameter in named.items()
            if parameter.requires_grad and name not in learning
        ]

    def before_train_iter(self,
                          runner: Runner,
                          batch_idx: int,
                          data_batch: Any = None) -> None:
        """Start or end the rest."""
        now = runner.epoch if self.by_epoch else runner.iter
        if now >= self.epochs:
            self._wake()
        elif not self._handles:
            self._rest(runner)

    def after_train(self, runner: Runner) -> None:
        """Leave nothing behind."""
        self._wake()

    def _rest(self, runner: Runner) -> None:
        runner.logger.info(
            f'Only {", ".join(self.trainable)} learn for the first '
            f'{self.epochs} {"epochs" if self.by_epoch else "iterations"}')
        self._handles = [
            parameter.register_hook(torch.zeros_like)
            for parameter in self._resting
        ]
        wrappers = [runner.optim_wrapper]
        if not isinstance(runner.optim_wrapper, OptimWrapper):
            wrappers = list(runner.optim_wrapper.values())
        self._handles += [
            wrapper.optimizer.register_step_pre_hook(self._drop_gradients)
            for wrapper in wrappers
        ]

    def _drop_gradients(self, *_: Any) -> None:
        for parameter in self._resting:
            parameter.grad = None

    def _wake(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
