"""Dense heads of mmdet with one ranking over all pyramid levels.

mmdet's anchor heads call ``loss_cls`` once a level. That is the same thing
for a loss that is a sum over anchors, but not for a ranking: with a positive
at 0.3 and a negative at 0.2 in one level and a negative at 0.9 in another,
the AP loss is 0.5, and within each level it is 0. Requires mmdet.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from mmdet.models.dense_heads import ATSSHead, FCOSHead, RetinaHead, RPNHead
from mmengine.structures import InstanceData
from torch import Tensor, nn

from mmrank.registry import MODELS

from .replaced_loss import replaced_loss


class LevelJoiner(nn.Module):
    """Stands in for a loss that is called once a level, and calls it once.

    The calls of all levels but the last return a zero that keeps the graph;
    the last one returns the loss of all levels together, so the sum over
    levels, which mmdet takes, is the loss.

    Args:
        loss (nn.Module): the loss, with mmdet's calling convention.
        num_levels (int): how many calls make one loss.

    Raises:
        RuntimeError: by :meth:`check`, if the head made another number of
            calls.
    """

    def __init__(self, loss: nn.Module, num_levels: int) -> None:
        super().__init__()
        self.loss = loss
        self.use_sigmoid = loss.use_sigmoid
        self.num_levels = num_levels
        self.levels: list[tuple[Tensor, Tensor, Tensor]] = []

    def forward(self, cls_score: Tensor, label: Tensor,
                weight: Tensor | None = None, **unused: Any) -> Tensor:
        if weight is None:
            weight = torch.ones_like(label, dtype=torch.float32)
        self.levels.append((cls_score, label, weight))
        if len(self.levels) < self.num_levels:
            return cls_score.sum() * 0
        return self.loss(*self.joined())

    def joined(self) -> tuple[Tensor, Tensor, Tensor]:
        """Scores (N, C), labels (N,) and weights (N,) of all levels."""
        scores, labels, weights = zip(*self.levels)
        return torch.cat(scores), torch.cat(labels), torch.cat(weights)

    def check(self, head: nn.Module) -> None:
        """Raises where the head did not call its loss once a level."""
        if len(self.levels) != self.num_levels:
            raise RuntimeError(
                f'{type(head).__name__} called its loss {len(self.levels)} '
                f'times for {self.num_levels} levels')


class CalibratedScoresMixin:
    """Final scores of a dense head pass through the loss's calibration.

    The map acts on the final score, class score times centerness, so it
    leaves the order of the detections as it is. Once a calibration is
    fitted, ``score_thr`` speaks of that calibrated score.
    """

    calibrates_scores = True

    def _predict_by_feat_single(self, *args: Any, cfg: Any = None,
                                **kwargs: Any) -> InstanceData:
        calibration = self.loss_cls.calibration
        cfg = copy.deepcopy(self.test_cfg if cfg is None else cfg)
        if calibration.fitted and 'score_thr' in cfg:
            # the early filter sees class scores, which a centerness only
            # lowers: none that it drops could pass the threshold later
            cfg.final_score_thr = cfg.score_thr
            cfg.score_thr = calibration.inverse(cfg.score_thr)
        return super()._predict_by_feat_single(*args, cfg=cfg, **kwargs)

    def _bbox_post_process(self, results: InstanceData, cfg: Any,
                           **kwargs: Any) -> InstanceData:
        calibration = self.loss_cls.calibration
        if calibration.fitted:
            scores = results.scores
            if 'score_factors' in results:
                scores = scores * results.pop('score_factors')
            results.scores = calibration(scores)
            results = results[results.scores > cfg.get('final_score_thr', -1)]
        return super()._bbox_post_process(results, cfg=cfg, **kwargs)


class RankingDefaultsMixin(CalibratedScoresMixin):
    """Gives an mmdet dense head the defaults of a ranking loss.

    It writes ``use_sigmoid=True`` into the loss's config where nothing is
    said, which mmdet's dense heads read there, and initialises all
    convolutions without the bias of focal loss: a ranking does not move the
    common offset of the scores, so an initial score of 0.01 would stay
    below every usual ``score_thr`` for ever.
    """

    def __init__(self, *args: Any, loss_cls: dict | None = None,
                 init_cfg: dict | list | None = None,
                 **kwargs: Any) -> None:
        loss_cls = dict(loss_cls or dict(type='mmrank.RaMBOLoss'))
        loss_cls.setdefault('use_sigmoid', True)
        if init_cfg is None:
            init_cfg = dict(type='Normal', layer='Conv2d', std=0.01)
        super().__init__(
            *args, loss_cls=loss_cls, init_cfg=init_cfg, **kwargs)


class OneRankingMixin(RankingDefaultsMixin):
    """Gives an mmdet dense head one ranking over all its levels.

    Write it before the head in the bases of a subclass::

        class RankMyHead(OneRankingMixin, MyHead): ...

    It works for any head whose ``loss_by_feat`` takes the levels' scores as
    its first argument and calls ``self.loss_cls(scores, labels, weights)``
    once a level.
    """

    ranks_in_one_call = True

    def loss_by_feat(self, cls_scores: list[Tensor], *args: Any,
                     **kwargs: Any) -> dict:
        """mmdet's losses, the classification's over all levels at once."""
        loss = self.loss_cls
        joiner = LevelJoiner(loss, len(cls_scores))
        with replaced_loss(self, joiner):
            losses = super().loss_by_feat(cls_scores, *args, **kwargs)
        joiner.check(self)
        scores, labels, _ = joiner.joined()
        losses.update(loss.get_accuracy(scores, labels))
        return losses


@MODELS.register_module()
class RankRetinaHead(OneRankingMixin, RetinaHead):
    """RetinaNet's head with one ranking over all levels.

    Arguments, parameter names and predictions are those of mmdet's
    ``RetinaHead``, whose checkpoints load.
    """


@MODELS.register_module()
class RankATSSHead(OneRankingMixin, ATSSHead):
    """ATSS's head with one ranking over all levels; see RankRetinaHead."""


@MODELS.register_module()
class RankRPNHead(OneRankingMixin, RPNHead):
    """A region proposal network whose objectness is trained by ranking.

    Parameter names are those of mmdet's ``RPNHead``. The anchors that its
    sampler leaves out have weight 0 and take no part.
    """

    def loss_by_feat(self, *args: Any, **kwargs: Any) -> dict:
        losses = super().loss_by_feat(*args, **kwargs)
        return {
            name if name.startswith('loss_rpn') else f'rpn_{name}': value
            for name, value in losses.items()
        }


@MODELS.register_module()
class RankFCOSHead(RankingDefaultsMixin, FCOSHead):
    """FCOS's head for a ranking loss.

    mmdet's ``FCOSHead`` joins the levels itself and works with a ranking loss
    as it is. This one adds what :class:`OneRankingMixin` adds beside that:
    ``use_sigmoid=True``, an initialisation without focal loss's bias, and
    calibrated final scores.
    """
