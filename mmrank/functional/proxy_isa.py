"""The Proxy-ISA loss and the weights that make it; see :mod:`.proxies`."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .differentiable import lifted
from .proxies import (
    checked_labels,
    count_by_class,
    logsum_by_class,
    logsum_of_others,
    own_entries,
)


class ProxyISAWeights(NamedTuple):
    """What :func:`proxy_isa_weights` returns."""

    positive: Tensor
    """Shape (B,), omega+ of each embedding with the proxy of its class."""
    negative: Tensor
    """Shape (B, C), omega- of each embedding with every proxy."""
    outliers: Tensor
    """Shape (B,), bool: whose similarity to its own proxy is too low."""


def proxy_isa_weights(similarities: Tensor,
                      labels: Tensor,
                      counts: Tensor,
                      learned: Tensor,
                      *,
                      k: float = 0.9,
                      V: float = 100.,  # noqa: N803
                      tau: float = 1.5,
                      margin_lambda: float = 0.1) -> ProxyISAWeights:
    r"""The weights of Proxy-ISA: informative pairs up, outliers down.

    With :math:`\beta = (V - 1) / V`, a class of :math:`n` clean samples has

    .. math::
        E = \frac{1 - \beta^n}{1 - \beta},\quad
        \nu = \frac{1}{1 + \log(1 + E)},\quad
        \sigma = 1 + \frac{(1 + e^{-\tau}) (\nu - 1)}{1 + e^{V - \tau - E}}

    the band of width :math:`\eta = (1 + k (1 - S)) \nu + \lambda` below the
    learned similarity :math:`S`, and :math:`S_{out} = S - \eta`. Then

    .. math::
        \omega^+ = \begin{cases} 1 + \sigma & S_{out} \le s \le S \\
            \sigma & \text{otherwise}\end{cases}\qquad
        \omega^- = \begin{cases} 1 / \max(1, E) & s < S_{out} \\
            1 & \text{otherwise}\end{cases}

    Args:
        similarities (Tensor): shape (B, C), cosines.
        labels (Tensor): shape (B,), integers in [0, C).
        counts (Tensor): shape (C,), the clean samples n seen of each class.
        learned (Tensor): shape (C,), the learned similarities S.
        k (float): sensitivity of the band to a class's hardness, > 0.
        V (float): upper bound of the effective number, > 1.
        tau (float): timing of the decay of sigma, > 0.
        margin_lambda (float): the band's extra width, in [0, 1].

    Returns:
        ProxyISAWeights: ``positive`` (B,), ``negative`` (B, C), ``outliers``
        (B,) bool; without gradient, in the similarities' dtype, float32 at
        least. ``negative`` is meaningless where a row meets its own class.

    Raises:
        ValueError: if shapes do not fit, or a label is no class.

    Source: Li et al., "Informative Sample-Aware Proxy for Deep Metric
    Learning" (2022), Eq. 9, 14-16.

    Example:
        >>> weights = proxy_isa_weights(
        ...     torch.tensor([[.9, -.3]]), torch.tensor([0]),
        ...     counts=torch.tensor([0, 2]), learned=torch.ones(2))
        >>> weights.positive, weights.outliers  # E = 0: sigma is 1
        (tensor([2.]), tensor([False]))
        >>> weights.negative  # E = 1.99
        tensor([[1.0000, 0.5025]])
    """
    similarities = lifted(similarities.detach())
    labels = checked_labels(labels, similarities)
    effective, sigma, eta = proxy_isa_schedule(
        counts, learned, k=k, V=V, tau=tau, margin_lambda=margin_lambda)
    learned = learned.to(eta.dtype)
    own = own_entries(similarities, labels)
    outlier_bound = learned - eta
    outliers = own < outlier_bound[labels]
    informative = ~outliers & (own <= learned[labels])
    positive = sigma[labels] + informative
    negative = torch.where(similarities < outlier_bound,
                           1 / effective.clamp(min=1), 1.)
    return ProxyISAWeights(
        positive.to(similarities.dtype), negative.to(similarities.dtype),
        outliers)


def proxy_isa_schedule(counts: Tensor,
                       learned: Tensor,
                       *,
                       k: float = 0.9,
                       V: float = 100.,  # noqa: N803
                       tau: float = 1.5,
                       margin_lambda: float = 0.1
                       ) -> tuple[Tensor, Tensor, Tensor]:
    """The effective number E, the decay sigma and the band eta of classes.

    Args:
        counts (Tensor): shape (C,), the clean samples n seen of each class.
        learned (Tensor): shape (C,), the learned similarities S.
        k, V, tau, margin_lambda (float): see :func:`proxy_isa_weights`.

    Returns:
        tuple[Tensor, Tensor, Tensor]: E in [0, V), sigma in (0, 1] and eta,
        each of shape (C,), float32 (float64 if ``learned`` is).

    Example:
        >>> proxy_isa_schedule(torch.tensor([0]), torch.ones(1))
        (tensor([0.]), tensor([1.]), tensor([1.1000]))
    """
    if V <= 1:
        raise ValueError(f'V must be greater than 1, but got {V!r}')
    dtype = lifted(learned).dtype
    # in double: beta^n of a float32 beta is wrong in the third digit of E
    # once n is in the hundreds
    n = counts.double()
    effective = -V * torch.expm1(n * torch.log1p(n.new_full((), -1 / V)))
    nu = 1 / (1 + effective.log1p())
    decay = torch.sigmoid(effective + tau - V)
    sigma = 1 + (1 + torch.exp(n.new_full((), -tau))) * (nu - 1) * decay
    eta = (1 + k * (1 - learned.double())) * nu + margin_lambda
    return effective.to(dtype), sigma.to(dtype), eta.to(dtype)


def proxy_isa_loss(similarities: Tensor,
                   labels: Tensor,
                   positive_weights: Tensor,
                   negative_weights: Tensor,
                   *,
                   margin: float = 0.1,
                   alpha: float = 32.0) -> Tensor:
    r"""The Proxy-ISA loss: Proxy-Anchor whose pairs carry weights.

    .. math::
        L = \frac{\sum_{c \in C^+} \log(1 + \sum_{x \in X_c^+}
                e^{\alpha (\delta - s) \omega^+})}
            {\sum_{c \in C^+} \overline{\omega}^+_c}
          + \frac{\sum_c \log(1 + \sum_{x \in X_c^-}
                e^{\alpha (s + \delta) \omega^-})}
            {\sum_c \overline{\omega}^-_c}

    where a bar is the mean over the class's positives, or negatives. With all
    weights 1 it is :func:`proxy_anchor_loss`.

    Args:
        similarities (Tensor): shape (B, C), cosines, differentiable; see
            :func:`cosine_similarities`.
        labels (Tensor): shape (B,), integers in [0, C).
        positive_weights (Tensor): shape (B,), omega+ > 0.
        negative_weights (Tensor): shape (B, C), omega- > 0; where a row meets
            its own class it is not read.
        margin (float): the paper's delta.
        alpha (float): the scale, > 0.

    Returns:
        Tensor: a scalar >= 0, float32 or wider. An empty batch gives 0 with a
        zero gradient.

    Raises:
        ValueError: if shapes do not fit, or a label is no class.

    Source: Li et al., "Informative Sample-Aware Proxy for Deep Metric
    Learning" (2022), Eq. 13. The paper does not say what the mean weight of a
    class without negatives is (a batch of one class): here it is 1.

    Example:
        >>> import torch
        >>> from mmrank.functional import (
        ...     cosine_similarities, proxy_anchor_loss)
        >>> proxies = torch.eye(2)
        >>> labels = torch.tensor([0, 1])
        >>> loss = proxy_isa_loss(
        ...     cosine_similarities(proxies.flip(0), proxies), labels,
        ...     torch.ones(2), torch.ones(2, 2))
        >>> torch.equal(loss, proxy_anchor_loss(proxies.flip(0), labels,
        ...                                     proxies))
        True
    """
    labels = checked_labels(labels, similarities)
    similarities = lifted(similarities)
    if not len(labels):
        return similarities.sum()
    if (positive_weights.shape != labels.shape
            or negative_weights.shape != similarities.shape):
        raise ValueError(
            f'the weights must have the shapes {tuple(labels.shape)} and '
            f'{tuple(similarities.shape)}, but got '
            f'{tuple(positive_weights.shape)} and '
            f'{tuple(negative_weights.shape)}')
    num_classes = similarities.shape[1]
    positives = own_entries(similarities, labels)
    members = count_by_class(labels, num_classes)
    attract = logsum_by_class(alpha * (margin - positives) * positive_weights,
                        labels, num_classes)
    repel = logsum_of_others(
        (similarities + margin).mul_(alpha).mul(negative_weights), labels)
    others = len(labels) - members
    total = negative_weights.sum(0).index_add(
        0, labels, -own_entries(negative_weights, labels))
    mean_negative = torch.where(others > 0, total / others.clamp(min=1), 1.)
    mean_positive = positive_weights / members[labels]
    return (attract.sum() / mean_positive.sum()
            + repel.sum() / mean_negative.sum())
