"""Smooth-AP: average precision with a sigmoid in place of each comparison.

Legend: ``N`` ranked items, ``C`` classes, ``P`` relevant items of all classes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .checks import checked_relevance
from .differentiable import Measured, differentiable
from .sparse_ranks import outside_graphs

# comparisons held at a time: 64 MB in float32
_COMPARISONS = 1 << 24


@outside_graphs
def smooth_ap_loss(scores: Tensor, relevance: Tensor, *,
                   tau: float = 0.01) -> Tensor:
    """One minus the mean over classes of the smoothed average precision.

        AP_c = (1 / P_c) * sum over relevant i of  R+_i / R_i
        R_i  = 1 + sum over j != i of  sigmoid((y_j - y_i) / tau)
        R+_i = 1 + the same sum over relevant j

    Both ranks carry a gradient. As ``tau`` goes to 0 this becomes average
    precision, with ties counted a half.

    Args:
        scores (Tensor): shape (N, C), floating point, higher is better.
            float16 and bfloat16 are lifted to float32.
        relevance (Tensor): shape (N, C), boolean or 0/1 integers. Classes
            without a relevant item are left out of the mean.
        tau (float): the sigmoid's temperature, > 0, in units of the scores;
            the paper's is 0.01, for cosine similarities.

    Returns:
        Tensor: a scalar in [0, 1), float32 or wider, attached to the graph; 0
        without relevant items.

    Raises:
        ValueError: for shapes or types that do not fit, or ``tau`` <= 0.

    Cost: O(N P) time, O(N C) memory and a block of at most 2^24 comparisons,
    or of one relevant item. Value and gradient come in one pass.

    Source: Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale
    Image Retrieval", ECCV 2020, Eq. 6 and 7.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[2.], [1.], [0.]], requires_grad=True)
        >>> loss = smooth_ap_loss(scores, torch.tensor([[1], [0], [1]]))
        >>> round(loss.item(), 4)
        0.1667
    """
    relevance = checked_relevance('scores', scores, relevance, ('N', 'C'))
    if not 0 < tau < math.inf:
        raise ValueError(f'tau must be finite and > 0, but got {tau!r}')

    def measure(scores: Tensor) -> Measured:
        return _value_and_gradient(scores, relevance, tau)

    return differentiable(scores, measure)[0]


def _value_and_gradient(scores: Tensor, relevance: Tensor,
                        tau: float) -> Measured:
    lists, relevant = scores.T.contiguous(), relevance.T.contiguous()
    gradient = torch.zeros_like(lists)
    of_class, item = relevant.nonzero(as_tuple=True)
    number = relevant.sum(1)
    classes = (number > 0).sum().clamp(min=1)
    # what one relevant item counts in the mean of means
    share = 1 / (number.clamp(min=1) * classes).to(scores)
    loss = scores.new_zeros(())
    block = max(1, _COMPARISONS // max(1, scores.shape[0]))
    for which, mine in zip(of_class.split(block), item.split(block)):
        others = lists[which]
        own = others.gather(1, mine[:, None])
        above = ((others - own) / tau).sigmoid()
        positives = relevant[which].to(scores)
        # an item compared with itself adds a half
        rank = above.sum(1) + 0.5
        among = (above * positives).sum(1) + 0.5
        weight = share[which]
        loss = loss + (weight * (1 - among / rank)).sum()
        slope = (among / rank - positives.T).T / rank[:, None]
        slope = slope * above * (1 - above) * (weight / tau)[:, None]
        slope.scatter_add_(1, mine[:, None], -slope.sum(1, keepdim=True))
        gradient.index_add_(0, which, slope)
    return [loss], gradient.T
