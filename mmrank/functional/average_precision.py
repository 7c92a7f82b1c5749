"""The average precision of a ranking, in the conventions that users meet."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def average_precision(scores: Tensor,
                      relevance: Tensor,
                      *,
                      convention: str = 'finite',
                      ties: str = 'worst',
                      positives: Tensor | float | None = None) -> Tensor:
    """Average precision of rankings by score, highest first.

    Three conventions that users meet; the same ranking gives each its own
    number:

    - ``'finite'``: the mean over relevant items of the precision at their
      rank;
    - ``'trapezoid'``: the area under the precision-recall curve, joined by
      straight lines from precision 1 at recall 0;
    - ``'threshold'``: as ``'finite'``, but items of equal score enter
      together (what scikit-learn computes).

    Neither rule for ties depends on the order in which equal scores are
    listed; ``'threshold'`` gives the same number under both:

    - ``'worst'``: tied irrelevant items come first;
    - ``'shared'``: tied items share their relevance evenly, which a random
      order among them gives in the mean.

    Args:
        scores (Tensor): shape (..., N).
        relevance (Tensor): bool or 0/1, shape (..., N); with ties 'shared'
            also a share between.
        convention (str): one of the above.
        ties (str): one of the above.
        positives (Tensor | float, optional): shape (...), the number of
            relevant items, at least the sum of ``relevance``: those not
            listed are never found. None: that sum.

    Returns:
        Tensor: shape (...), float64; NaN where nothing is relevant.

    Raises:
        ValueError: on an unknown convention or rule for ties, unequal
            shapes, or a score that is NaN.

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
    if ties not in ('worst', 'shared'):
        raise ValueError(f'ties must be worst or shared, but got {ties!r}')
    if scores.isnan().any():
        raise ValueError('a score is NaN, which has no place in a ranking')
    # irrelevant first, then a stable sort: the worst order of ties
    order = relevance.double().argsort(dim=-1, stable=True)
    scores, relevance = scores.gather(-1, order), relevance.gather(-1, order)
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    hits = relevance.gather(-1, order).double()
    keys = -scores.contiguous()
    end = torch.searchsorted(keys, keys, right=True)
    if ties == 'shared':
        start = torch.searchsorted(keys, keys)
        before = F.pad(hits.cumsum(-1), (1, 0))
        hits = (before.gather(-1, end) - before.gather(-1, start)) \
            / (end - start)
    found = hits.cumsum(-1)
    rank = torch.arange(
        1, scores.shape[-1] + 1, device=scores.device).double()
    precision = found / rank
    if convention == 'threshold':
        precision = precision.gather(-1, end - 1)
    elif convention == 'trapezoid':
        before = F.pad(precision[..., :-1], (1, 0), value=1.0)
        precision = (precision + before) / 2
    total = hits.sum(-1) if positives is None else positives
    return (precision * hits).sum(-1) / total
