"""Smooth-AP as the classification loss of a detector."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mmrank.functional import smooth_ap_loss
from mmrank.registry import MODELS

from .ranking_loss import RankingContext, RankingLoss, check_number


@MODELS.register_module()
class SmoothAPLoss(RankingLoss):
    """Mean average precision with a sigmoid in place of each comparison.

    See :func:`mmrank.functional.smooth_ap_loss`. The paper ranks cosine
    similarities of a retrieval batch; here each class ranks the samples of a
    detector's batch by their logits. It has no use for a memory.

    Args:
        tau (float): the temperature, > 0, in units of the logits. The paper's
            0.01 is for cosines; logits spread wider.
        options: those of :class:`RankingLoss`.

    Raises:
        ValueError: for values out of range.

    Source: Brown et al., ECCV 2020.

    Example:
        >>> import torch
        >>> loss = SmoothAPLoss(tau=0.01)
        >>> scores = torch.tensor([[2.], [1.], [0.]])
        >>> round(loss(scores, torch.tensor([0, 1, 0])).item(), 4)
        0.1667
    """

    def __init__(self, tau: float = 0.1, **options: Any) -> None:
        super().__init__(**options)
        check_number('tau', tau, None)
        self.tau = tau

    def ranking_terms(self, scores: Tensor, relevance: Tensor,
                      context: RankingContext) -> dict[str, Tensor]:
        """See :func:`mmrank.functional.smooth_ap_loss`."""
        return dict(loss=smooth_ap_loss(scores, relevance, tau=self.tau))

    def extra_repr(self) -> str:
        return f'tau={self.tau}, {super().extra_repr()}'
