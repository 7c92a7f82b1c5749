"""A head that calls another loss for the length of a block."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def replaced_loss(head: nn.Module, loss: nn.Module) -> Iterator[None]:
    """Within the block ``head.loss_cls`` is ``loss``.

    The module table is written directly: nothing is registered anew, so
    neither the state dict nor the check of :mod:`.rules` sees the change.

    Args:
        head (nn.Module): a head with the submodule ``loss_cls``.
        loss (nn.Module): the loss within the block.

    Example:
        >>> head = nn.Module()
        >>> head.loss_cls = nn.MSELoss()
        >>> with replaced_loss(head, nn.L1Loss()):
        ...     head.loss_cls
        L1Loss()
        >>> head.loss_cls
        MSELoss()
    """
    usual = head._modules['loss_cls']
    head._modules['loss_cls'] = loss
    try:
        yield
    finally:
        head._modules['loss_cls'] = usual
