"""The recall loss; see :mod:`mmrank.functional.blackbox` for the ranks."""

from __future__ import annotations

import math

from torch import Tensor

from .blackbox import blackbox_loss
from .ranks import Communicator, Ranks, Rule


def blackbox_recall_loss(similarity: Tensor,
                         relevance: Tensor,
                         *,
                         margin: float = 0.0,
                         lambda_val: float = 1.0,
                         weighting: str = 'log',
                         rank_scale: float = 1.0,
                         valid: Tensor | None = None,
                         comm: Communicator | None = None) -> Tensor:
    """The recall loss of queries against a gallery, blackbox-differentiated.

        L = mean over relevant pairs (q, i) of  l(r_qi),    l(k) = log(1 + k)

    or ``l(l(r))`` with 'loglog'; ``r_qi = rank_qi - rank+_qi`` is the number
    of irrelevant items above i in the list of q. With ``G_q`` items in that
    list, ``g_qi = G_q * l'(r_qi) / (number of relevant pairs)``.

    Args:
        similarity (Tensor): shape (Q, G), floating point, higher is nearer;
            precision, infinite and NaN values as in :func:`blackbox_ap_loss`.
        relevance (Tensor): shape (Q, G), boolean or 0/1 integers. A query
            with no relevant item contributes nothing.
        margin (float): ``alpha`` >= 0.
        lambda_val (float): ``lambda`` > 0.
        weighting (str): 'log' or 'loglog'.
        rank_scale (float): multiplies every ``r``, > 0.
        valid (Tensor, optional): shape (Q, G), False where an item is not in
            the query's list, such as the query itself.
        comm (Communicator, optional): the other processes, each with queries
            of its own; the mean is over the pairs of all of them.

    Returns:
        Tensor: a scalar >= 0, attached to the graph; 0 without relevant
        pairs.

    Raises:
        ValueError: for shapes or types that do not fit, or values out of
            range.

    Source: RaMBO, Eq. 14, 17, 20. The authors' code turns normalised ranks
    back by the number of all lists instead of the length of one; where these
    differ, ``rank_scale`` has the factor.

    Example:
        >>> import torch
        >>> similarity = torch.tensor([[.9, .5, .1]], requires_grad=True)
        >>> relevance = torch.tensor([[0, 1, 0]])
        >>> loss = blackbox_recall_loss(similarity, relevance)
        >>> round(loss.item(), 4)  # log 2
        0.6931
    """
    if weighting not in ('log', 'loglog'):
        raise ValueError("weighting must be 'log' or 'loglog', but got "
                         f'{weighting!r}')
    if not 0 < rank_scale < math.inf:
        raise ValueError('rank_scale must be finite and > 0, but got '
                         f'{rank_scale!r}')
    rule = _rule(weighting == 'loglog', rank_scale)
    return blackbox_loss(
        similarity, relevance, rule, margin=margin,
        lambda_val=lambda_val, valid=valid, comm=comm, name='similarity')


def _rule(twice: bool, scale: float) -> Rule:
    """Eq. 17, 20, the mean over all pairs."""

    def rule(ranks: Ranks) -> tuple[Tensor, Tensor]:
        above = scale * ranks.irrelevant_above.double()
        value, slope = above.log1p(), scale / (1 + above)
        if twice:
            value, slope = value.log1p(), slope / (1 + value)
        return value / ranks.num_pairs, slope / ranks.num_pairs

    return rule
