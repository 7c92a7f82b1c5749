"""AdaSample: the probabilities and weights of drawn positives.

Legend: ``B`` anchors, ``K`` candidate positives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .differentiable import lifted


def adasample_probabilities(distances: Tensor,
                            exponent: float | Tensor,
                            *,
                            mask: Tensor | None = None) -> Tensor:
    r"""The probabilities of drawing each candidate as the positive.

    .. math:: p_i \propto d_i^{\lambda / L_{avg}}

    Args:
        distances (Tensor): distances to the anchor, shape (..., K), >= 0.
        exponent (float | Tensor): lambda / L_avg, >= 0; a number or a tensor
            that broadcasts with ``distances``. 0 is uniform. inf gives all
            the mass to the largest distance, in equal shares where several
            are exactly equal.
        mask (Tensor, optional): bool, shape (..., K); False entries (the
            anchor itself, padding) are as if absent and get 0.

    Returns:
        Tensor: shape (..., K), in the dtype of ``distances`` but at least
        float32, sums to 1 over the last axis. Uniform where all distances are
        0. All 0 in rows without any candidate.

    Raises:
        ValueError: for a negative or NaN exponent given as a number.

    Computed in log space and float64, so an exponent of 1e6 neither
    overflows nor loses digits. O(K) a row.

    Source: AdaSample, Eq. 13.

    Example:
        >>> import torch
        >>> adasample_probabilities(torch.tensor([1., 2., 3.]), 1.0)
        tensor([0.1667, 0.3333, 0.5000])
        >>> adasample_probabilities(torch.tensor([1., 2., 3.]), float('inf'))
        tensor([0., 0., 1.])
    """
    if not isinstance(exponent, Tensor) and not exponent >= 0:
        raise ValueError(f'exponent must be >= 0, but got {exponent!r}')
    d = distances.detach().double()
    if mask is None:
        mask = torch.ones_like(d, dtype=torch.bool)
    power = torch.as_tensor(exponent, dtype=d.dtype, device=d.device)
    top = d.masked_fill(~mask, 0).amax(-1, keepdim=True) if d.shape[-1] \
        else d.sum(-1, keepdim=True)
    # all candidates at distance 0: nothing tells them apart
    ratio = torch.where(top > 0, d / top.clamp_min(1e-300), 1.0)
    hardest = (ratio >= 1).to(d.dtype)
    logs = torch.where(power > 0, power * ratio.log(), 0.0)
    shares = torch.where(power.isinf(), hardest, logs.exp()) * mask
    total = shares.sum(-1, keepdim=True)
    shares = shares / torch.where(total > 0, total, 1.0)
    dtype = torch.promote_types(distances.dtype, torch.float32)
    return shares.to(dtype)


def adasample_weights(distances: Tensor,
                      *,
                      min_distance: float = 1e-2,
                      normalize: bool = True) -> Tensor:
    r"""The weights ``w_i`` proportional to ``1 / d_i``, of mean 1.

    Args:
        distances (Tensor): distances of the drawn positives to their
            anchors, shape (B,), >= 0.
        min_distance (float): smaller distances weigh as this one does; so an
            identical pair cannot take the weight of the whole batch.
        normalize (bool): False returns ``1 / d_i`` itself, for a caller that
            normalises over several processes.

    Returns:
        Tensor: shape (B,), float32 or wider, no gradient; empty for B = 0.

    Source: AdaSample, Eq. 13. The bound is ours.

    Example:
        >>> import torch
        >>> adasample_weights(torch.tensor([1.0, 0.5]))
        tensor([0.6667, 1.3333])
    """
    weights = 1 / lifted(distances.detach()).clamp_min(min_distance)
    if normalize and weights.numel():
        weights = weights / weights.mean()
    return weights


def draw(probabilities: Tensor, uniforms: Tensor) -> Tensor:
    """One index a row by the inverse distribution function.

    Args:
        probabilities (Tensor): shape (..., K), >= 0, any positive sum.
        uniforms (Tensor): shape (...), in [0, 1).

    Returns:
        Tensor: int64, shape (...); never an index of probability 0.

    Example:
        >>> import torch
        >>> draw(torch.tensor([[.5, 0., .5]]), torch.tensor([0.5]))
        tensor([2])
    """
    steps = probabilities.double().cumsum(-1)
    level = uniforms.to(steps) * steps[..., -1]
    return (steps <= level[..., None]).sum(-1)
