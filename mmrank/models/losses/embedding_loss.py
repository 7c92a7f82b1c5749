"""What every loss of a batch of embeddings has in common."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmrank.state import Collectives, current

from .global_batch import EMPTY_BATCHES, check_distributed, gather_batch


@dataclass(frozen=True)
class EmbeddingContext:
    """What a batch's embeddings and labels do not tell.

    Attributes:
        proxies (Tensor, optional): shape (C, D), of the head; there where
            the loss's class says ``needs_proxies``.
        learning (bool): in training and with gradients. Only then may a loss
            read or change what it remembers.
        own (slice): this process's rows of the batch.
        comm (Collectives, optional): the processes whose batches were
            joined; None where each has its own.
    """
    proxies: Tensor | None
    learning: bool
    own: slice
    comm: Collectives | None


class EmbeddingLoss(nn.Module):
    """Base of losses of (embeddings, labels), with proxies or without.

    A subclass writes :meth:`batch_loss`, the mathematics of one batch on one
    process. The base checks the input, lifts the embeddings to float32 (wider
    ones stay) also under autocast, joins the batches of all processes,
    multiplies by ``loss_weight`` and warns where nothing is learned.

    In evaluation mode or under ``torch.no_grad()`` no batches are joined:
    processes may then hold unequal numbers of them.

    Class attributes:
        needs_proxies (bool): one proxy a class; the head makes them from its
            ``num_classes`` and hands them over.
        needs_pairs (bool): only elements of one class, or of one class with
            the memory, teach anything. After 50 batches in a row with a loss
            of 0 and no two elements of one class, a warning names the remedy.

    Args:
        loss_weight (float): multiplies the loss, >= 0.
        distributed (str): with several processes, 'global' is the loss of
            their joined batches, the same on each; 'local' is that of each
            process's own batch. With either, DDP's mean over the gradients is
            right with no rescaling.

    Raises:
        ValueError: for values out of range; in ``forward`` for shapes or
            types that do not fit, or missing proxies.

    Example:
        >>> class Spread(EmbeddingLoss):
        ...     def batch_loss(self, embeddings, labels, context):
        ...         return (embeddings @ embeddings.T).square().mean()
        >>> Spread(loss_weight=4.)(torch.eye(2), torch.tensor([0, 1])).item()
        2.0
    """

    needs_proxies = False
    needs_pairs = False

    def __init__(self,
                 loss_weight: float = 1.0,
                 distributed: str = 'global') -> None:
        super().__init__()
        if not 0 <= loss_weight < math.inf:
            raise ValueError('loss_weight must be finite and >= 0, but got '
                             f'{loss_weight!r}')
        self.loss_weight = loss_weight
        self.distributed = check_distributed(distributed)
        self._empty_batches = 0

    def forward(self,
                embeddings: Tensor,
                labels: Tensor,
                proxies: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings (Tensor): shape (B, D), floating point.
            labels (Tensor): shape (B,), integers; with proxies in [0, C).
            proxies (Tensor, optional): shape (C, D), floating point; ignored
                by a loss that has none.

        Returns:
            Tensor: a scalar, float32 or wider; 0, attached to the graph, for
            an empty batch.
        """
        self._check(embeddings, labels, proxies)
        learning = self.training and torch.is_grad_enabled()
        comm, start, own = None, 0, len(labels)
        with torch.autocast(embeddings.device.type, enabled=False):
            embeddings = embeddings.to(
                torch.promote_types(embeddings.dtype, torch.float32))
            if learning and self.distributed == 'global':
                comm = current()
                embeddings, labels, start = gather_batch(
                    embeddings, labels, comm)
            value = self.batch_loss(
                embeddings, labels, EmbeddingContext(
                    proxies, learning, slice(start, start + own), comm))
        if learning and self.needs_pairs:
            self._watch(value, labels)
        return self.loss_weight * value

    def batch_loss(self, embeddings: Tensor, labels: Tensor,
                   context: EmbeddingContext) -> Tensor:
        """The loss of a batch; what a subclass writes.

        Args:
            embeddings (Tensor): shape (B, D), float32 or wider; of all
                processes, in their order and with gradient, or of this one.
            labels (Tensor): shape (B,), integers.
            context (EmbeddingContext): proxies, and where we are.

        Returns:
            Tensor: a scalar, attached to the graph, not yet weighted.
        """
        raise NotImplementedError(
            f'{type(self).__name__} must write batch_loss(embeddings, labels, '
            'context)')

    def extra_repr(self) -> str:
        return (f'loss_weight={self.loss_weight}, '
                f'distributed={self.distributed!r}')

    def _check(self, embeddings: Tensor, labels: Tensor,
               proxies: Tensor | None) -> None:
        if self.needs_proxies and proxies is None:
            raise ValueError(
                f'{type(self).__name__} needs proxies, a tensor of shape '
                '(C, D); MetricLearningHead makes them from num_classes')
        if embeddings.dim() != 2 or labels.shape != embeddings.shape[:1]:
            raise ValueError(
                'embeddings must have shape (B, D) and labels (B,), but got '
                f'{tuple(embeddings.shape)} and {tuple(labels.shape)}')
        if labels.is_floating_point():
            raise ValueError(f'labels must be integers, but got '
                             f'{labels.dtype}')

    # data-dependent: a compiled model breaks its graph here
    @torch.compiler.disable
    def _watch(self, value: Tensor, labels: Tensor) -> None:
        if self._empty_batches >= EMPTY_BATCHES:
            return
        # only a loss of exactly 0 can come from a batch without pairs
        empty = bool(value == 0) and not self._has_pair(labels)
        self._empty_batches = self._empty_batches + 1 if empty else 0
        if self._empty_batches == EMPTY_BATCHES:
            warnings.warn(
                f'no two elements of the last {EMPTY_BATCHES} batches shared '
                f'a class, so {type(self).__name__} teaches nothing: take a '
                'sampler that draws several samples a class, such as '
                'ClassBalancedBatchSampler', stacklevel=3)

    def _has_pair(self, labels: Tensor) -> bool:
        return len(labels.unique()) < len(labels)
