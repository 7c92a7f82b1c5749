"""RaMBO's detection loss, in mmdet's calling convention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mmrank.functional import blackbox_map_terms
from mmrank.registry import MODELS
from mmrank.state import Collectives

from .ranking_loss import RankingContext, RankingLoss, check_number


@MODELS.register_module()
class RaMBOLoss(RankingLoss):
    """Blackbox-differentiated mean average precision of a classifier.

        L = (w_map * L_mAP + w_apc * L_APc) / (w_map + w_apc)

    ``L_mAP`` is the mean over classes of 1 - AP, each class ranking all
    samples of the batch (of all images, not image by image) together with the
    remembered ones; ``L_APc`` ranks all (sample, class) scores of the batch
    in one list. See :func:`mmrank.functional.blackbox_map_loss`.

    It replaces a head's ``loss_cls``. Box heads ask :meth:`get_cls_channels`
    and get one column a class and none for the background, since AP ranks
    nothing by it. Dense heads read ``use_sigmoid`` in the loss's config: write
    ``use_sigmoid=True`` there.

    Args:
        lambda_val (float): the paper's lambda, > 0.
        margin (float): the paper's alpha, >= 0; acts in training only.
        memory_batches (int): the paper's tau, how many past batches are
            remembered; 0 for none.
        map_weight (float): ``w_map``, >= 0.
        cross_class_weight (float): ``w_apc``, >= 0.
        random_margin (bool): whether each score's margin is
            ``alpha * |N(0, 1)|``, drawn anew in each step, as in the authors'
            code, instead of the paper's constant.
        memory_in_cross_class (bool): whether ``L_APc`` sees the remembered
            scores too; in the authors' code it does not.
        options: those of :class:`RankingLoss`: ``loss_weight``, which leaves
            ``lambda_val`` its meaning, ``num_classes``, ``use_sigmoid``,
            ``memory_negatives``, ``distributed``, ``reduction``.

    Attributes:
        last_terms (dict[str, Tensor]): ``per_class_term`` and
            ``cross_class_term`` of the last call, unweighted.

    Raises:
        ValueError: for values out of range; for what is no ranking, see
            :meth:`RankingLoss.forward`. The loss is in [0, loss_weight]; 0,
            attached to the graph, where nothing is positive; NaN where a
            score is NaN.

    Source: Rolinek et al., CVPR 2020 (RaMBO), section 5.2, Eq. 6, 14, 21-23,
    the weights 2:1 too; the normalised rank and the memory's place are those
    of the authors' code.

    Example:
        >>> loss = RaMBOLoss(margin=0., memory_batches=0)
        >>> scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
        >>> value = loss(scores, torch.tensor([0, 1]))
        >>> round(float(value), 4), loss.last_terms['per_class_term'].item()
        (0.0556, 0.0)
    """

    # a few numbers a positive instead of all rows
    communicates = True

    def __init__(self,
                 lambda_val: float = 0.5,
                 margin: float = 0.15,
                 memory_batches: int = 7,
                 map_weight: float = 2.0,
                 cross_class_weight: float = 1.0,
                 loss_weight: float = 1.0,
                 num_classes: int | None = None,
                 use_sigmoid: bool = True,
                 random_margin: bool = False,
                 memory_in_cross_class: bool = False,
                 **options: Any) -> None:
        super().__init__(loss_weight, num_classes, use_sigmoid,
                         memory_batches, **options)
        for name, value, low in (('lambda_val', lambda_val, None),
                                 ('margin', margin, 0),
                                 ('map_weight', map_weight, 0),
                                 ('cross_class_weight', cross_class_weight,
                                  0)):
            check_number(name, value, low)
        if map_weight + cross_class_weight == 0:
            raise ValueError('map_weight and cross_class_weight must not '
                             'both be 0')
        self.lambda_val = lambda_val
        self.margin = margin
        self.weights: dict[str, Any] = dict(
            map_weight=map_weight, cross_class_weight=cross_class_weight)
        self.random_margin = random_margin
        self.memory_in_cross_class = memory_in_cross_class

    def ranking_terms(self, scores: Tensor, relevance: Tensor,
                      context: RankingContext) -> dict[str, Tensor]:
        """See :func:`mmrank.functional.blackbox_map_terms`."""
        memory, comm = context.memory_scores, context.comm
        margin = self.margin if context.learning else 0.0
        if context.learning and self.random_margin:
            scores = self._deviated(scores, relevance, None)
            if memory is not None:
                memory = self._deviated(
                    memory, context.memory_relevance, comm)
            margin = 0.0
        terms = blackbox_map_terms(
            scores,
            relevance,
            margin=margin,
            lambda_val=self.lambda_val,
            memory_scores=memory,
            memory_relevance=context.memory_relevance,
            memory_in_cross_class=self.memory_in_cross_class,
            comm=comm,
            **self.weights)
        return dict(loss=terms.loss, per_class_term=terms.per_class,
                    cross_class_term=terms.cross_class)

    def _deviated(self, scores: Tensor, relevance: Tensor | None,
                  comm: Collectives | None) -> Tensor:
        """Scores moved by a random margin; equally on all of ``comm``."""
        assert relevance is not None
        seed = torch.randint(1 << 40, (1, ), device=scores.device)
        if comm is not None:
            seed = comm.sum(seed)
        generator = torch.Generator(scores.device).manual_seed(int(seed))
        noise = torch.randn(scores.shape, generator=generator,
                            device=scores.device).to(scores.dtype).abs()
        return scores + self.margin * (0.5 - relevance.to(scores)) * noise

    def extra_repr(self) -> str:
        return (f'lambda_val={self.lambda_val}, margin={self.margin}, '
                f'{super().extra_repr()}')
