"""The false positive rate of pairs told apart by a distance."""

from __future__ import annotations

import math

from torch import Tensor


def fpr_at_recall(distances: Tensor,
                  matches: Tensor,
                  recall: float = 0.95) -> Tensor:
    """False positive rate at the distance that accepts a share of matches.

    The threshold is the smallest distance at which at least ``recall`` of
    the matching pairs are accepted; the result is the share of the
    non-matching pairs at or below it, so ties count against.

    Args:
        distances (Tensor): shape (N,), smaller is more similar, no NaN.
        matches (Tensor): bool or 0/1, shape (N,).
        recall (float): in (0, 1].

    Returns:
        Tensor: a float64 scalar in [0, 1].

    Raises:
        ValueError: if there is no matching or no non-matching pair, a
            distance is NaN, or ``recall`` is out of range.

    >>> import torch
    >>> float(fpr_at_recall(torch.tensor([.1, .2, .3, .4]),
    ...                     torch.tensor([1, 0, 1, 0])))
    0.5
    """
    if not 0 < recall <= 1:
        raise ValueError(f'recall must be in (0, 1], but got {recall}')
    if distances.shape != matches.shape or distances.dim() != 1:
        raise ValueError(
            f'distances and matches must be vectors of one length, but have '
            f'shapes {tuple(distances.shape)} and {tuple(matches.shape)}')
    if distances.isnan().any():
        raise ValueError('a distance is NaN; the descriptors are not finite')
    matches = matches.bool()
    positive, negative = distances[matches], distances[~matches]
    if len(positive) == 0 or len(negative) == 0:
        raise ValueError(
            f'the false positive rate needs matching and non-matching pairs, '
            f'but there are {len(positive)} and {len(negative)}')
    # the small term undoes rounding: 0.95 * 20 is 19 and not 19.000000001
    accepted = math.ceil(recall * len(positive) - 1e-9)
    threshold = positive.kthvalue(max(accepted, 1)).values
    return (negative <= threshold).double().mean()
