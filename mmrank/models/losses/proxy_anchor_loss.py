from __future__ import annotations

from torch import Tensor, nn

from mmrank.functional.proxies import proxy_anchor_loss
from mmrank.registry import MODELS

from .global_batch import check_distributed, check_proxies, join_batch


@MODELS.register_module()
class ProxyAnchorLoss(nn.Module):
    """:func:`mmrank.functional.proxy_anchor_loss` of the global batch.

    The proxies are a parameter of the head and come with each call.

    Args:
        margin (float): the paper's delta.
        alpha (float): the scale, > 0.
        loss_weight (float): multiplies the loss.
        distributed (str): with several processes, 'global' is the loss of
            their joined batches, the same on each; 'local' is that of each
            process's own batch.

    Example:
        >>> import torch
        >>> loss = ProxyAnchorLoss()
        >>> proxies = torch.eye(2)
        >>> loss(proxies, torch.tensor([0, 1]), proxies=proxies).item() < 12.4
        True
    """

    needs_proxies = True

    def __init__(self,
                 margin: float = 0.1,
                 alpha: float = 32.0,
                 loss_weight: float = 1.0,
                 distributed: str = 'global') -> None:
        super().__init__()
        if alpha <= 0:
            raise ValueError(f'alpha must be > 0, but got {alpha!r}')
        self.margin = margin
        self.alpha = alpha
        self.loss_weight = loss_weight
        self.distributed = check_distributed(distributed)

    def forward(self,
                embeddings: Tensor,
                labels: Tensor,
                proxies: Tensor | None = None) -> Tensor:
        """The loss.

        Args:
            embeddings (Tensor): shape (B, D), floating point.
            labels (Tensor): shape (B,), integers in [0, C).
            proxies (Tensor): shape (C, D), floating point.

        Returns:
            Tensor: a scalar, float32 or wider; 0 for an empty batch.
        """
        proxies = check_proxies(proxies, 'ProxyAnchorLoss')
        embeddings, labels = join_batch(embeddings, labels, self.distributed)
        return self.loss_weight * proxy_anchor_loss(
            embeddings, labels, proxies, margin=self.margin, alpha=self.alpha)

    def extra_repr(self) -> str:
        return (f'margin={self.margin}, alpha={self.alpha}, '
                f'loss_weight={self.loss_weight}, '
                f'distributed={self.distributed!r}')
