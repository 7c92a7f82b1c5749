"""Cosines with class proxies, and sums over the samples of a class.

Legend: ``B`` embeddings of a batch, ``C`` classes with one proxy each, ``D``
embedding width. Everything is computed in float32, or in float64 where an
input is float64, also under autocast. A loss needs about three ``(B, C)``
temporaries, forward and backward together, and no loop.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .checks import refuse_where
from .differentiable import full_precision


def cosine_similarities(embeddings: Tensor, proxies: Tensor) -> Tensor:
    """The cosine of every embedding with every proxy.

    Args:
        embeddings (Tensor): shape (B, D), floating point, any length; B may
            be 0.
        proxies (Tensor): shape (C, D), floating point, any length.

    Returns:
        Tensor: shape (B, C), float32 (float64 if an input is), within
        rounding in [-1, 1]. A vector of length 0 has the cosine 0.

    Raises:
        ValueError: if the shapes do not fit.

    Example:
        >>> cosine_similarities(torch.tensor([[2., 0.]]),
        ...                     torch.tensor([[0., 1.], [-3., 0.]]))
        tensor([[ 0., -1.]])
    """
    if (embeddings.ndim != 2 or proxies.ndim != 2
            or embeddings.shape[1] != proxies.shape[1]):
        raise ValueError(
            'embeddings must have shape (B, D) and proxies (C, D), but got '
            f'{tuple(embeddings.shape)} and {tuple(proxies.shape)}')
    dtype = torch.promote_types(
        torch.promote_types(embeddings.dtype, proxies.dtype), torch.float32)
    with full_precision(embeddings):
        return F.normalize(embeddings.to(dtype)) @ F.normalize(
            proxies.to(dtype)).t()


def checked_labels(labels: Tensor, similarities: Tensor) -> Tensor:
    """The labels as int64, refused where they index no proxy."""
    num_samples, num_classes = similarities.shape
    if labels.shape != (num_samples, ) or labels.is_floating_point():
        raise ValueError(
            f'labels must be integers of shape ({num_samples},), but got '
            f'{labels.dtype} of shape {tuple(labels.shape)}')
    refuse_where(
        (labels < 0) | (labels >= num_classes), labels, lambda found: (
            f'labels must lie in [0, {num_classes}), one proxy a class, but '
            f"got {sorted(set(found)) or 'others'}; set the head's "
            'num_classes to the number of training classes'))
    return labels.long()


def own_entries(matrix: Tensor, labels: Tensor) -> Tensor:
    """The entry of each row in the column of its label, shape (B,)."""
    # indexing, as gather's backward would keep the matrix that is overwritten
    return matrix[torch.arange(len(labels), device=labels.device), labels]


def count_by_class(labels: Tensor, num_classes: int) -> Tensor:
    """The samples of each class, int64, shape (C,)."""
    return torch.zeros(
        num_classes, dtype=torch.int64, device=labels.device).index_add_(
            0, labels, torch.ones_like(labels, dtype=torch.int64))


def logsum_by_class(logits: Tensor, labels: Tensor,
                    num_classes: int) -> Tensor:
    """log(1 + sum of exp over the rows of each class), shape (C,)."""
    peak = logits.new_zeros(num_classes).scatter_reduce_(
        0, labels, logits.detach(), 'amax')
    total = torch.zeros_like(peak).index_add(
        0, labels, torch.exp(logits - peak[labels]))
    return _log_one_plus(total, peak)


def logsum_of_others(logits: Tensor, labels: Tensor) -> Tensor:
    """log(1 + sum of exp over the rows of *other* classes), shape (C,).

    Overwrites ``logits``.
    """
    logits = logits.scatter_(1, labels.unsqueeze(1), -torch.inf)
    peak = logits.detach().amax(0).clamp(min=0)
    return _log_one_plus(logits.sub_(peak).exp_().sum(0), peak)


def _log_one_plus(total: Tensor, peak: Tensor) -> Tensor:
    """log(1 + e^peak total), exact for a tiny total as for a huge peak.

    A positive ``peak`` is the largest logit, hence ``total`` >= 1 there.
    """
    return peak + torch.log1p(total + torch.expm1(-peak))
