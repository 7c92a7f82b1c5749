"""Box heads of mmdet that report the same losses whatever the batch holds.

mmdet's own box heads work with a ranking loss as they are. What these add
matters on several processes: with no proposal at all mmdet's head omits
``loss_cls``, so this process would log other keys and stay away from the
messages in which the others compute the loss of the global batch. Parameter
names are mmdet's. Requires mmdet.
"""

from __future__ import annotations

from typing import Any

from mmdet.models.roi_heads.bbox_heads import (
    BBoxHead,
    ConvFCBBoxHead,
    DoubleConvFCBBoxHead,
    Shared2FCBBoxHead,
    Shared4Conv1FCBBoxHead,
)
from mmengine.structures import InstanceData
from torch import Tensor

from mmrank.registry import MODELS


class RankBBoxHeadMixin:
    """Calls the loss with zero rows too, and lets a cascade go on."""

    def loss(self, cls_score: Tensor, bbox_pred: Tensor, rois: Tensor,
             labels: Tensor, label_weights: Tensor, *args: Any,
             **kwargs: Any) -> dict:
        """mmdet's losses; with zero rows, the same keys as with some."""
        losses = super().loss(cls_score, bbox_pred, rois, labels,
                              label_weights, *args, **kwargs)
        if cls_score is not None and cls_score.numel() == 0:
            losses['loss_cls'] = self.loss_cls(
                cls_score, labels, label_weights)
            losses.update(self.loss_cls.get_accuracy(cls_score, labels))
        return losses

    def refine_bboxes(self, sampling_results: list, bbox_results: dict,
                      batch_img_metas: list[dict]) -> list[InstanceData]:
        """mmdet's refined boxes; an empty list an image for zero rows."""
        refined = super().refine_bboxes(
            sampling_results, bbox_results, batch_img_metas)
        if refined is not None:
            return refined
        # None would end the cascade here, and with it the later stages' keys
        rois = bbox_results['rois']
        return [InstanceData(bboxes=rois.new_zeros((0, 4)))
                for _ in batch_img_metas]


@MODELS.register_module()
class RankBBoxHead(RankBBoxHeadMixin, BBoxHead):
    """mmdet's ``BBoxHead`` for a ranking loss."""


@MODELS.register_module()
class RankConvFCBBoxHead(RankBBoxHeadMixin, ConvFCBBoxHead):
    """mmdet's ``ConvFCBBoxHead`` for a ranking loss."""


@MODELS.register_module()
class RankShared2FCBBoxHead(RankBBoxHeadMixin, Shared2FCBBoxHead):
    """mmdet's ``Shared2FCBBoxHead`` for a ranking loss."""


@MODELS.register_module()
class RankShared4Conv1FCBBoxHead(RankBBoxHeadMixin, Shared4Conv1FCBBoxHead):
    """mmdet's ``Shared4Conv1FCBBoxHead`` for a ranking loss."""


@MODELS.register_module()
class RankDoubleConvFCBBoxHead(RankBBoxHeadMixin, DoubleConvFCBBoxHead):
    """mmdet's ``DoubleConvFCBBoxHead`` for a ranking loss."""

    def forward(self, x_cls: Tensor, x_reg: Tensor) -> tuple[Tensor, Tensor]:
        if len(x_cls) > 0:
            return super().forward(x_cls, x_reg)
        # mmdet's cannot reshape nothing, and would take batch statistics of
        # it; every parameter stays in the graph
        nothing = sum(parameter.sum() for parameter in self.parameters()) * 0
        return (x_cls.new_zeros(0, self.fc_cls.out_features) + nothing,
                x_reg.new_zeros(0, self.fc_reg.out_features) + nothing)
