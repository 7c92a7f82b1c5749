"""Losses between embeddings and class proxies: Proxy-Anchor, Proxy-ISA.

Legend: ``B`` embeddings of a batch, ``C`` classes with one proxy each, ``D``
embedding width. Everything is computed in float32, or in float64 where an
input is float64, also under autocast. A loss needs about three ``(B, C)``
temporaries, forward and backward together, and no loop.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


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
    dtype = _wide(torch.promote_types(embeddings.dtype, proxies.dtype))
    with torch.autocast(embeddings.device.type, enabled=False):
        return F.normalize(embeddings.to(dtype)) @ F.normalize(
            proxies.to(dtype)).t()


def proxy_anchor_loss(embeddings: Tensor,
                      labels: Tensor,
                      proxies: Tensor,
                      *,
                      margin: float = 0.1,
                      alpha: float = 32.0) -> Tensor:
    r"""The Proxy-Anchor loss, every proxy an anchor for the whole batch.

    .. math::
        L = \frac{1}{|C^+|} \sum_{p \in C^+} \log\Bigl(1 +
            \sum_{x \in X_p^+} e^{-\alpha (s(x,p) - \delta)}\Bigr)
          + \frac{1}{C} \sum_p \log\Bigl(1 +
            \sum_{x \in X_p^-} e^{\alpha (s(x,p) + \delta)}\Bigr)

    with the cosine s, the classes C+ present in the batch, and the batch's
    embeddings X_p+ of p's class and X_p- of all others.

    Args:
        embeddings (Tensor): shape (B, D), floating point, of any length.
        labels (Tensor): shape (B,), integers in [0, C).
        proxies (Tensor): shape (C, D), floating point, of any length.
        margin (float): the paper's delta.
        alpha (float): the scale, > 0.

    Returns:
        Tensor: a scalar >= 0, float32 or wider. An empty batch gives 0 with
        zero gradients. A class that is absent has no positive term, a class
        that all of the batch belongs to no negative one.

    Raises:
        ValueError: if shapes do not fit, or a label is no index of a proxy.

    Time O(B C D). Source: Kim et al., "Proxy Anchor Loss for Deep Metric
    Learning" (CVPR 2020), Eq. 4; equal to it.

    Example:
        >>> proxies = torch.eye(2)
        >>> worst = proxy_anchor_loss(-proxies[:1], torch.tensor([0]), proxies)
        >>> round(worst.item(), 3)  # 32 (1 + .1) + log(1 + e^3.2) / 2
        36.82
    """
    similarities = cosine_similarities(embeddings, proxies)
    labels = _checked(labels, similarities)
    if not len(labels):
        return similarities.sum() + 0 * proxies.sum()
    positives = _own(similarities, labels)
    with torch.autocast(similarities.device.type, enabled=False):
        attract = _by_class(alpha * (margin - positives), labels,
                            similarities.shape[1])
        # nothing holds on to the similarities: overwrite them
        repel = _over_batch(similarities.add_(margin).mul_(alpha), labels)
        present = _count(labels, similarities.shape[1]) > 0
        return attract.sum() / present.sum() + repel.mean()


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
    similarities = similarities.detach()
    similarities = similarities.to(_wide(similarities.dtype))
    labels = _checked(labels, similarities)
    effective, sigma, eta = proxy_isa_schedule(
        counts, learned, k=k, V=V, tau=tau, margin_lambda=margin_lambda)
    learned = learned.to(eta.dtype)
    own = _own(similarities, labels)
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
    dtype = _wide(learned.dtype)
    # in double: beta^n of a float32 beta is wrong in the third digit of E
    # once n is in the hundreds
    n = counts.double()
    effective = -V * torch.expm1(n * torch.log1p(n.new_tensor(-1 / V)))
    nu = 1 / (1 + effective.log1p())
    decay = torch.sigmoid(effective + tau - V)
    sigma = 1 + (1 + torch.exp(n.new_tensor(-tau))) * (nu - 1) * decay
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
        >>> proxies = torch.eye(2)
        >>> labels = torch.tensor([0, 1])
        >>> loss = proxy_isa_loss(
        ...     cosine_similarities(proxies.flip(0), proxies), labels,
        ...     torch.ones(2), torch.ones(2, 2))
        >>> torch.equal(loss, proxy_anchor_loss(proxies.flip(0), labels,
        ...                                     proxies))
        True
    """
    labels = _checked(labels, similarities)
    similarities = similarities.to(_wide(similarities.dtype))
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
    positives = _own(similarities, labels)
    members = _count(labels, num_classes)
    attract = _by_class(alpha * (margin - positives) * positive_weights,
                        labels, num_classes)
    repel = _over_batch(
        (similarities + margin).mul_(alpha).mul(negative_weights), labels)
    others = len(labels) - members
    total = negative_weights.sum(0).index_add(
        0, labels, -_own(negative_weights, labels))
    mean_negative = torch.where(others > 0, total / others.clamp(min=1), 1.)
    mean_positive = positive_weights / members[labels]
    return (attract.sum() / mean_positive.sum()
            + repel.sum() / mean_negative.sum())


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _checked(labels: Tensor, similarities: Tensor) -> Tensor:
    num_samples, num_classes = similarities.shape
    if labels.shape != (num_samples, ) or labels.is_floating_point():
        raise ValueError(
            f'labels must be integers of shape ({num_samples},), but got '
            f'{labels.dtype} of shape {tuple(labels.shape)}')
    wrong = labels[(labels < 0) | (labels >= num_classes)].tolist()
    if wrong:
        raise ValueError(
            f'labels must lie in [0, {num_classes}), one proxy a class, but '
            f"got {sorted(set(wrong))}; set the head's num_classes to the "
            'number of training classes')
    return labels.long()


def _own(matrix: Tensor, labels: Tensor) -> Tensor:
    """The entry of each row in the column of its label, shape (B,)."""
    # indexing, as gather's backward would keep the matrix that is overwritten
    return matrix[torch.arange(len(labels), device=labels.device), labels]


def _count(labels: Tensor, num_classes: int) -> Tensor:
    return torch.zeros(
        num_classes, dtype=torch.int64, device=labels.device).index_add_(
            0, labels, torch.ones_like(labels, dtype=torch.int64))


def _by_class(logits: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """log(1 + sum of exp over the rows of each class), shape (C,)."""
    peak = logits.new_zeros(num_classes).scatter_reduce_(
        0, labels, logits.detach(), 'amax')
    total = torch.zeros_like(peak).index_add(
        0, labels, torch.exp(logits - peak[labels]))
    return _log_one_plus(total, peak)


def _over_batch(logits: Tensor, labels: Tensor) -> Tensor:
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
