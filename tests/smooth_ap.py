"""What a user writes for a ranking loss of their own, and no line more."""

from torch import Tensor

from mmrank.models.losses import RankingContext, RankingLoss
from mmrank.registry import MODELS


@MODELS.register_module()
class ThirtyLineSmoothAP(RankingLoss):
    """Brown et al., ECCV 2020: AP with a sigmoid in place of each step."""

    def __init__(self, tau: float = 0.1, **options) -> None:
        super().__init__(**options)
        self.tau = tau

    def ranking_terms(self, scores: Tensor, relevance: Tensor,
                      context: RankingContext) -> dict[str, Tensor]:
        total = scores.sum() * 0
        for column, relevant in zip(scores.T, relevance.T):
            if relevant.any():
                positive = column[relevant][:, None]
                above = ((column - positive) / self.tau).sigmoid()
                # an item is not above itself, which counts a half here
                rank, rank_positive = above.sum(1) + .5, \
                    above[:, relevant].sum(1) + .5
                total = total + 1 - (rank_positive / rank).mean()
        classes = relevance.any(0).sum()
        return dict(loss=total / classes.clamp(min=1), ranked_classes=classes)
