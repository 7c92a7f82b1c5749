from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.optim import OptimWrapper
from mmengine.runner import Runner
from torch import nn

from mmrank.registry import HOOKS

from ..bare_model import bare_model


@HOOKS.register_module()
class HeadWarmupHook(Hook):
    """In the first epochs, only the head and its proxies learn.

    All parameters stay in the graph: freezing them by ``requires_grad`` would
    leave DDP waiting for gradients, or, done before the wrapping, would keep
    them out of DDP for good. Instead the gradient of a resting parameter is
    zero in the backward pass, and during an iteration the optimiser's groups
    lack the parameter, so it does not decay, gathers no moments, and counts
    in no clipping by norm and no overflow check. Between iterations, when
    checkpoints are written, the groups are whole.

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

    Example:
        >>> custom_hooks = [dict(type='mmrank.HeadWarmupHook', epochs=5)]
    """

    # before anything that looks at gradients or writes checkpoints
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
        self._resting: list[nn.Parameter] = []
        self._handles: list[Any] = []
        self._held: list[tuple[dict, list[nn.Parameter]]] = []

    def before_train(self, runner: Runner) -> None:
        """Find the parameters that rest."""
        named = dict(bare_model(runner).named_parameters())
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
            return
        if not self._handles:
            runner.logger.info(
                f'Only {", ".join(self.trainable)} learn for the first '
                f'{self.epochs} {"epochs" if self.by_epoch else "iterations"}')
            self._handles = [
                parameter.register_hook(torch.zeros_like)
                for parameter in self._resting
            ]
        self._hold(runner)

    def after_train_iter(self,
                         runner: Runner,
                         batch_idx: int,
                         data_batch: Any = None,
                         outputs: Any = None) -> None:
        """Make the optimiser's groups whole again."""
        self._release()

    def after_train(self, runner: Runner) -> None:
        """Leave nothing behind."""
        self._wake()

    def _hold(self, runner: Runner) -> None:
        """Take the resting parameters out of the optimisers' groups."""
        wrappers = [runner.optim_wrapper]
        if not isinstance(runner.optim_wrapper, OptimWrapper):
            wrappers = list(runner.optim_wrapper.values())
        resting = set(map(id, self._resting))
        for wrapper in wrappers:
            for group in wrapper.optimizer.param_groups:
                parameters = group['params']
                self._held.append((group, parameters))
                group['params'] = [
                    p for p in parameters if id(p) not in resting
                ]

    def _release(self) -> None:
        for group, parameters in self._held:
            group['params'] = parameters
        if self._held:
            for parameter in self._resting:
                parameter.grad = None
        self._held = []

    def _wake(self) -> None:
        self._release()
        for handle in self._handles:
            handle.remove()
        self._handles = []
