from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from mmrank.registry import HOOKS

from ..bare_model import bare_model


@HOOKS.register_module()
class FrozenBNHook(Hook):
    """Batch norm with its stored statistics, which training leaves alone.

    The affine weights of the layers still learn, as in the published
    metric-learning settings; to stop them as well, give them ``lr_mult=0`` in
    ``paramwise_cfg``. Works with any backbone and any training loop: the
    layers are put into evaluation mode before every iteration, since loops
    call ``model.train()`` after each validation.

    Args:
        modules (Sequence[str]): names of the modules whose batch norms are
            frozen, '' for the whole model.

    Raises:
        ValueError: before training, if a module is missing or holds no batch
            norm.

    Example:
        >>> custom_hooks = [dict(type='mmrank.FrozenBNHook')]
    """

    def __init__(self, modules: Sequence[str] = ('backbone', )) -> None:
        self.modules = (modules, ) if isinstance(modules, str) \
            else tuple(modules)
        self._layers: list[nn.Module] = []

    def before_train(self, runner: Runner) -> None:
        """Find the layers."""
        model = bare_model(runner)
        named = dict(model.named_modules())
        self._layers = []
        for name in self.modules:
            layers = [
                layer for layer in named[name].modules()
                if isinstance(layer, _BatchNorm)
            ] if name in named else []
            if not layers:
                raise ValueError(
                    f'modules={self.modules} of FrozenBNHook: there is no '
                    f'batch norm in {name!r}; the model has '
                    f'{[n for n, _ in model.named_children()]}')
            self._layers += layers

    def before_train_iter(self,
                          runner: Runner,
                          batch_idx: int,
                          data_batch: Any = None) -> None:
        """Put the layers into evaluation mode."""
        for layer in self._layers:
            layer.eval()
