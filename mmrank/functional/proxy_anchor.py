"""The Proxy-Anchor loss; see :mod:`.proxies` for its parts."""

from __future__ import annotations

from torch import Tensor

from .differentiable import full_precision
from .proxies import (
    checked_labels,
    cosine_similarities,
    count_by_class,
    logsum_by_class,
    logsum_of_others,
    own_entries,
)


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
        >>> import torch
        >>> proxies = torch.eye(2)
        >>> worst = proxy_anchor_loss(-proxies[:1], torch.tensor([0]), proxies)
        >>> round(worst.item(), 3)  # 32 (1 + .1) + log(1 + e^3.2) / 2
        36.82
    """
    similarities = cosine_similarities(embeddings, proxies)
    labels = checked_labels(labels, similarities)
    if not len(labels):
        return similarities.sum() + 0 * proxies.sum()
    positives = own_entries(similarities, labels)
    with full_precision(similarities):
        attract = logsum_by_class(alpha * (margin - positives), labels,
                            similarities.shape[1])
        # nothing holds on to the similarities: overwrite them
        repel = logsum_of_others(similarities.add_(margin).mul_(alpha), labels)
        present = count_by_class(labels, similarities.shape[1]) > 0
        return attract.sum() / present.sum() + repel.mean()
