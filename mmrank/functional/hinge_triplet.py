"""Hinge triplets with hardest-in-batch negatives.

Legend: ``B`` triplets (one anchor and one positive each), ``D`` width of a
descriptor.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .differentiable import full_precision, lifted

DISTANCES = ('angular', 'euclidean')

# the slope of the squared angle is angle / sin(angle): this bounds it at pi
_MIN_SINE = 1e-3


def _check_distance(distance: str) -> None:
    if distance not in DISTANCES:
        raise ValueError(f'distance must be one of {DISTANCES}, but got '
                         f'{distance!r}')


def _squared_angle(chord: Tensor) -> Tensor:
    """The squared angle between unit vectors of squared distance ``chord``.

    Written on the chord, not on the cosine: arccos loses half of the digits
    near 0. The slope is exact up to the bound at pi.
    """
    half = chord.detach().clamp(0, 4).sqrt() / 2
    angle = 2 * torch.asin(half.clamp(max=1))
    slope = angle / torch.sin(angle).clamp_min(_MIN_SINE)
    slope = torch.where(angle < _MIN_SINE, torch.ones_like(slope), slope)
    return angle.square() + slope * (chord - chord.detach())


def squared_distances(x: Tensor, y: Tensor, distance: str) -> Tensor:
    """Squared distances of corresponding rows, with finite gradients.

    Args:
        x (Tensor): shape (..., D). For 'angular' of unit length.
        y (Tensor): shape (..., D), broadcasts with ``x``.
        distance (str): 'euclidean', or 'angular' for the angle in radians.

    Returns:
        Tensor: shape (...), at least 0. Gradients are finite for equal and
        for opposite rows; they are first derivatives only.
    """
    _check_distance(distance)
    chord = (x - y).square().sum(-1)
    return chord if distance == 'euclidean' else _squared_angle(chord)


def _hardest_negatives(anchors: Tensor, positives: Tensor, allowed: Tensor,
                       cross_terms: bool) -> tuple[Tensor, Tensor]:
    """Indices into cat(anchors, positives): the two ends of the nearest
    allowed negative pair of each triplet. No gradient."""
    size = anchors.shape[0]
    both = torch.stack([anchors, positives])
    length = both.square().sum(-1)
    square = (length[:, :, None] + length[:, None, :]
              - 2 * both @ both.transpose(1, 2))
    tables = [square[0], square[1]]
    if cross_terms:
        cross = (length[0][:, None] + length[1][None, :]
                 - 2 * anchors @ positives.T)
        tables += [cross, cross.T]
    table = torch.stack(tables, 1).masked_fill(~allowed[:, None], torch.inf)
    nearest = table.flatten(1).argmin(1)
    kind, other = nearest // size, nearest % size
    mine = torch.arange(size, device=anchors.device)
    # kinds: (a, a), (p, p), (a, p), (p, a)
    first = mine + size * ((kind == 1) | (kind == 3))
    second = other + size * ((kind == 1) | (kind == 2))
    return first, second


def hinge_triplet_losses(anchors: Tensor,
                         positives: Tensor,
                         *,
                         margin: float = 1.0,
                         distance: str = 'angular',
                         labels: Tensor | None = None,
                         cross_terms: bool = False) -> Tensor:
    """The loss of each triplet; see :func:`hinge_triplet_loss`.

    Returns:
        Tensor: shape (B,), float32 or wider. 0 for a triplet that no
        negative is left for.
    """
    _check_distance(distance)
    if anchors.ndim != 2 or anchors.shape != positives.shape:
        raise ValueError('anchors and positives must have one shape (B, D), '
                         f'but got {tuple(anchors.shape)} and '
                         f'{tuple(positives.shape)}')
    if labels is not None and labels.shape != anchors.shape[:1]:
        raise ValueError(f'labels must have shape ({anchors.shape[0]},), but '
                         f'got {tuple(labels.shape)}')
    with full_precision(anchors):
        anchors, positives = lifted(anchors), lifted(positives)
        if distance == 'angular':
            anchors = F.normalize(anchors, dim=1)
            positives = F.normalize(positives, dim=1)
        matching = squared_distances(anchors, positives, distance)
        size = anchors.shape[0]
        if size == 0:
            return matching
        if labels is None:
            labels = torch.arange(size, device=anchors.device)
        allowed = labels[:, None] != labels[None, :]
        with torch.no_grad():
            first, second = _hardest_negatives(anchors, positives, allowed,
                                               cross_terms)
        # the chosen pairs once more by their difference: the matrix product
        # above rounds small distances, even below 0
        rows = torch.cat([anchors, positives])
        negative = squared_distances(rows[first], rows[second], distance)
        losses = F.relu(margin + matching - negative)
        return torch.where(allowed.any(1), losses, losses * 0)


def hinge_triplet_loss(anchors: Tensor,
                       positives: Tensor,
                       *,
                       margin: float = 1.0,
                       distance: str = 'angular',
                       weights: Tensor | None = None,
                       labels: Tensor | None = None,
                       cross_terms: bool = False) -> Tensor:
    r"""The mean hinge triplet loss with hardest-in-batch negatives.

    .. math::
        L = \frac1B \sum_i w_i \max(0, t + d(a_i, p_i)^2 - d_i^2), \quad
        d_i = \min_{j \ne i} \min\{d(a_i, a_j), d(p_i, p_j)\}

    Args:
        anchors (Tensor): descriptors, shape (B, D), any floating dtype.
        positives (Tensor): shape (B, D); row i matches row i of ``anchors``.
        margin (float): the paper's t.
        distance (str): 'angular' (AHT), the angle of Eq. 15; rows are
            L2-normalised first. 'euclidean' (HT) takes rows as they are.
        weights (Tensor, optional): shape (B,), no gradient; AdaSample's w,
            of mean 1 (:func:`adasample_weights`). None: all 1.
        labels (Tensor, optional): class ids, shape (B,). Triplets of one
            class are no negatives of each other. None: all classes differ.
        cross_terms (bool): also mine d(a_i, p_j) and d(p_i, a_j), as HardNet
            does.

    Returns:
        Tensor: a scalar attached to the graph, float32 or wider; 0 for an
        empty batch, and for triplets without any negative. Of several equally
        near negatives, one gets the gradient.

    Raises:
        ValueError: for an unknown distance, or shapes that disagree.

    Precision: float32 or wider, also under autocast. Gradients are finite
    for equal and opposite descriptors (the slope of the squared angle is
    bounded beyond pi - 1e-3); first derivatives only.

    Cost: one batched matrix product, O(B^2 D) time and O(B^2) memory.

    Source: AdaSample, Eq. 14 and 15. The paper sums over the batch; this is
    the mean, HardNet's, which the published learning rate of 10 belongs to.

    Example:
        >>> import torch
        >>> a = torch.tensor([[1., 0.], [0., 1.]])
        >>> hinge_triplet_loss(a, a, margin=3.0, distance='euclidean')
        tensor(1.)
    """
    losses = hinge_triplet_losses(
        anchors, positives, margin=margin, distance=distance, labels=labels,
        cross_terms=cross_terms)
    return weighted_mean(losses, weights)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """``mean(weights * losses)``, 0 and attached for an empty batch."""
    if weights is not None:
        if weights.shape != losses.shape:
            raise ValueError(f'weights must have shape {tuple(losses.shape)},'
                             f' but got {tuple(weights.shape)}')
        losses = losses * weights.detach().to(losses)
    return losses.sum() / max(losses.numel(), 1)
