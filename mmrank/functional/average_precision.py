"""The average precision of a ranking, in three conventions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def average_precision(scores: Tensor,
                      relevance: Tensor,
                      *,
                      convention: str = 'finite') -> Tensor:
    """Average precision of rankings by score, highest first.

    Three conventions that users meet; the same ranking gives each its own
    number:

    - ``'finite'``: the mean over relevant items of the precision at their
      rank; tied irrelevant items come first;
    - ``'trapezoid'``: the area under the precision-recall curve, joined by
      straight lines from precision 1 at recall 0; the same rule for ties;
    - ``'threshold'``: as ``'finite'``, but items of equal score enter
      together (what scikit-learn computes).

    None depends on the order in which equal scores are listed.

    Args:
        scores (Tensor): shape (..., N).
        relevance (Tensor): bool or 0/1, shape (..., N).
        convention (str): one of the above.

    Returns:
        Tensor: shape (...), float64; NaN where nothing is relevant.

    Raises:
        ValueError: on an unknown convention, unequal shapes, or a score
            that is NaN.

    >>> import torch
    >>> scores, relevance = torch.tensor([4., 3, 2, 1]), torch.tensor([1, 0, 1, 0])
    >>> [round(float(average_precision(scores, relevance, convention=c)), 6)
    ...  for c in ('finite', 'trapezoid', 'threshold')]
    [0.833333, 0.791667, 0.833333]
    """  # noqa: E501
    if scores.shape != relevance.shape:
        raise ValueError(f'scores have shape {tuple(scores.shape)} but '
                         f'relevance {tuple(relevance.shape)}')
    if convention not in ('finite', 'trapezoid', 'threshold'):
        raise ValueError(f'convention must be finite, trapezoid or '
                         f'threshold, but got {convention!r}')
    if scores.isnan().any():
        raise ValueError('a score is NaN, which has no place in a ranking')
    relevance = relevance.bool()
    # irrelevant first, then a stable sort: the pessimistic order of ties
    order = relevance.to(torch.uint8).argsort(
        dim=-1, stable=True)
    scores, relevance = scores.gather(-1, order), relevance.gather(-1, order)
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    hits = relevance.gather(-1, order).double()
    found = hits.cumsum(-1)
    rank = torch.arange(
        1, scores.shape[-1] + 1, device=scores.device).double()
    precision = found / rank
    if convention == 'threshold':
        last = torch.searchsorted(
            -scores.contiguous(), -scores.contiguous(), right=True)
        precision = precision.gather(-1, last - 1)
    elif convention == 'trapezoid':
        before = F.pad(precision[..., :-1], (1, 0), value=1.0)
        precision = (precision + before) / 2
    return (precision * hits).sum(-1) / hits.sum(-1)
