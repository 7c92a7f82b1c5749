from __future__ import annotations

import difflib
import inspect
from typing import Any

from torch import Tensor

from mmrank.optional import need
from mmrank.registry import MODELS

from .embedding_loss import EmbeddingContext, EmbeddingLoss

# of the library's losses module, what is no loss of (embeddings, labels)
_NO_LABELS = {
    'BaseLossWrapper', 'BaseMetricLossFunction', 'CrossBatchMemory',
    'MultipleLosses', 'SelfSupervisedLoss', 'VICRegLoss'
}
# where a nested dict(type=...) of a keyword is looked up
_PARTS = {
    'distance': 'distances',
    'reducer': 'reducers',
    'embedding_regularizer': 'regularizers',
    'weight_regularizer': 'regularizers',
    'miner': 'miners',
}


@MODELS.register_module()
class PytorchMetricLearningLoss(EmbeddingLoss):
    """Any loss of pytorch-metric-learning, by its name.

    The loss is a submodule, so its parameters (proxies, class weights) are in
    the checkpoint and reach the optimiser, under
    ``head.loss_module.loss.<name>``. It is computed in float32, also under
    autocast. It needs the package: ``pip install pytorch-metric-learning``.

    Args:
        loss (str): class name in ``pytorch_metric_learning.losses``.
        miner (str | dict, optional): class name in
            ``pytorch_metric_learning.miners``, or ``dict(type=name, ...)``.
        num_classes (int, optional): passed on where the loss takes it; the
            head fills it in.
        embedding_size (int, optional): passed on where the loss takes it; the
            head fills it in.
        loss_weight (float): multiplies the loss.
        distributed (str): with several processes, 'global' is the loss of
            their joined batches, the same on each; 'local' is that of each
            process's own batch. Not to be combined with the library's own
            distributed wrapper, which multiplies the loss.
        kwargs: passed to the loss. ``distance``, ``reducer``,
            ``embedding_regularizer`` and ``weight_regularizer`` may be
            ``dict(type=name, ...)`` of the library.

    Raises:
        ImportError: if pytorch-metric-learning is missing.
        ValueError: for an unknown name; near names are suggested.

    Example:
        >>> import torch
        >>> loss = PytorchMetricLearningLoss('ContrastiveLoss', neg_margin=.5)
        >>> loss(torch.eye(4)[[0, 0, 1]], torch.tensor([0, 0, 1])).item()
        0.0
    """

    # of its losses with proxies the value is never exactly 0
    needs_pairs = True

    def __init__(self,
                 loss: str,
                 miner: str | dict | None = None,
                 num_classes: int | None = None,
                 embedding_size: int | None = None,
                 loss_weight: float = 1.0,
                 distributed: str = 'global',
                 **kwargs: Any) -> None:
        super().__init__(loss_weight, distributed)
        kwargs = {
            name: _build(value, _PARTS[name])
            if name in _PARTS and isinstance(value, dict) else value
            for name, value in kwargs.items()
        }
        sizes = dict(num_classes=num_classes, embedding_size=embedding_size)
        cls = _find(loss, 'losses')
        taken = _arguments(cls)
        for name in sizes.keys() & taken:
            if sizes[name] is not None:
                kwargs.setdefault(name, sizes[name])
        self.loss = cls(**kwargs)
        self.miner = None
        if miner is not None:
            self.miner = _build(
                miner if isinstance(miner, dict) else dict(type=miner),
                'miners')

    def batch_loss(self, embeddings: Tensor, labels: Tensor,
                   context: EmbeddingContext) -> Tensor:
        # attached to everything, or DDP would wait for a gradient in a batch
        # from which the loss or its miner selects nothing
        attached = 0 * embeddings.sum() + sum(
            0 * parameter.sum() for parameter in self.parameters())
        if len(labels) == 0:
            return attached
        tuples = None if self.miner is None else self.miner(
            embeddings.detach(), labels)
        return self.loss(embeddings, labels, tuples) + attached


def _build(cfg: dict, module: str) -> Any:
    cfg = dict(cfg)
    return _find(cfg.pop('type'), module)(**cfg)


def _find(name: str, module: str) -> type:
    """The library's class of that name."""
    library = need(f'pytorch_metric_learning.{module}',
                   'PytorchMetricLearningLoss', 'pytorch-metric-learning')
    known = {
        key: value
        for key, value in vars(library).items()
        if inspect.isclass(value) and key not in _NO_LABELS
    }
    if name not in known:
        near = difflib.get_close_matches(name, known, 3, 0.5) or sorted(known)
        raise ValueError(
            f'pytorch_metric_learning.{module} has no {name!r} that works on '
            f'embeddings and labels; did you mean one of {near}?')
    return known[name]


def _arguments(cls: type) -> set[str]:
    """Names that the constructors of a class and its bases declare."""
    return {
        name
        for base in cls.__mro__ if '__init__' in vars(base)
        for name in inspect.signature(vars(base)['__init__']).parameters
    }
