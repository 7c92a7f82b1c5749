from __future__ import annotations

from torch import Tensor

from mmrank.functional import proxy_anchor_loss
from mmrank.registry import MODELS

from .embedding_loss import EmbeddingContext, EmbeddingLoss


@MODELS.register_module()
class ProxyAnchorLoss(EmbeddingLoss):
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
        super().__init__(loss_weight, distributed)
        if alpha <= 0:
            raise ValueError(f'alpha must be > 0, but got {alpha!r}')
        self.margin = margin
        self.alpha = alpha

    def batch_loss(self, embeddings: Tensor, labels: Tensor,
                   context: EmbeddingContext) -> Tensor:
        assert context.proxies is not None, 'needs_proxies'
        return proxy_anchor_loss(
            embeddings, labels, context.proxies, margin=self.margin,
            alpha=self.alpha)

    def extra_repr(self) -> str:
        return (f'margin={self.margin}, alpha={self.alpha}, '
                f'{super().extra_repr()}')
