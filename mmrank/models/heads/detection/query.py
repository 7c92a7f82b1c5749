"""DETR-like heads of mmdet with one ranking loss a decoder layer.

mmdet's query heads train every decoder layer with the same ``loss_cls``. A
loss that remembers scores would then rank a layer's queries against those of
the other layers, whose scores mean something else: the memory of the last
batch of one layer is the batch of another. Here each layer has a loss, hence
a memory, of its own. Requires mmdet.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from mmdet.models.dense_heads import (
    ConditionalDETRHead,
    DABDETRHead,
    DeformableDETRHead,
    DETRHead,
    DINOHead,
)
from mmdet.utils import reduce_mean
from mmengine.structures import InstanceData
from torch import Tensor, nn

from mmrank.registry import MODELS

from .replaced_loss import replaced_loss


class LayerwiseRankingMixin:
    """Gives an mmdet query head one ranking loss a decoder layer.

    ``loss_cls`` is the last layer's, ``auxiliary_losses['d0']``, ``['d1']``,
    ... are those of the layers before it, and ``['enc']`` is the encoder's
    proposals' where the head trains them.

    Args:
        num_decoder_layers (int, optional): how many decoder layers are
            trained. None takes it from ``num_pred_layer``, which the
            Deformable DETR family has, and is 6 for other heads.

    Raises:
        ValueError: in the first step, if the decoder has another number of
            layers.
    """

    ranks_in_one_call = True

    def __init__(self, *args: Any, num_decoder_layers: int | None = None,
                 loss_cls: dict | None = None, **kwargs: Any) -> None:
        loss_cls = dict(loss_cls or dict(type='mmrank.RaMBOLoss'))
        loss_cls.setdefault('use_sigmoid', True)
        super().__init__(*args, loss_cls=loss_cls, **kwargs)
        encoder = getattr(self, 'as_two_stage', False)
        if num_decoder_layers is None:
            num_decoder_layers = getattr(self, 'num_pred_layer', 6) - encoder
        self.num_decoder_layers = num_decoder_layers
        names = [f'd{layer}' for layer in range(num_decoder_layers - 1)]
        names += ['enc'] if encoder else []
        # a copy of a loss starts with an empty memory
        self.auxiliary_losses = nn.ModuleDict(
            {name: copy.deepcopy(self.loss_cls) for name in names})

    def loss_by_feat(self, all_layers_cls_scores: Tensor, *args: Any,
                     **kwargs: Any) -> dict[str, Tensor]:
        """mmdet's losses; each decoder layer ranks by a loss of its own."""
        layers = len(all_layers_cls_scores)
        if layers != self.num_decoder_layers:
            raise ValueError(
                f'{type(self).__name__} has num_decoder_layers='
                f'{self.num_decoder_layers}, but its decoder returns '
                f'{layers} layers')
        self._calls = self._losses_in_order()
        losses = super().loss_by_feat(all_layers_cls_scores, *args, **kwargs)
        losses.update(self.loss_cls.last_terms)
        return losses

    def _losses_in_order(self) -> Iterator[nn.Module]:
        """The losses in the order of the calls of ``loss_by_feat_single``."""
        for layer in range(self.num_decoder_layers - 1):
            yield self.auxiliary_losses[f'd{layer}']
        yield self.loss_cls
        if 'enc' in self.auxiliary_losses:
            yield self.auxiliary_losses['enc']

    def loss_by_feat_single(self, *args: Any, **kwargs: Any) -> tuple:
        """One layer's losses, with the loss that belongs to it."""
        with replaced_loss(self, next(self._calls)):
            return super().loss_by_feat_single(*args, **kwargs)

    def _predict_by_feat_single(self, *args: Any,
                                **kwargs: Any) -> InstanceData:
        results = super()._predict_by_feat_single(*args, **kwargs)
        results.scores = self.loss_cls.calibration(results.scores)
        return results


@MODELS.register_module()
class RankDETRHead(LayerwiseRankingMixin, DETRHead):
    """DETR's head with one ranking loss a decoder layer.

    With the sigmoid convention its classifier has no background row.
    """


@MODELS.register_module()
class RankConditionalDETRHead(LayerwiseRankingMixin, ConditionalDETRHead):
    """Conditional DETR's head with one ranking loss a decoder layer."""


@MODELS.register_module()
class RankDABDETRHead(LayerwiseRankingMixin, DABDETRHead):
    """DAB-DETR's head with one ranking loss a decoder layer."""


@MODELS.register_module()
class RankDeformableDETRHead(LayerwiseRankingMixin, DeformableDETRHead):
    """Deformable DETR's head with one ranking loss a decoder layer.

    In its two-stage form mmdet labels the encoder's proposals with class 0:
    column 0 ranks objectness, the other columns have negatives only.
    """


@MODELS.register_module()
class RankDINOHead(LayerwiseRankingMixin, DINOHead):
    """DINO's head with one ranking loss a decoder layer.

    The denoising queries of a layer form a ranking of their own, without
    memory: their difficulty is that of the injected noise, so ranking them
    against the matching queries would compare unlike scores, and their
    groups repeat every ground truth box many times, so a memory of them would
    hold mostly copies.
    """

    def __init__(self, *args: Any, loss_cls: dict | None = None,
                 **kwargs: Any) -> None:
        loss_cls = dict(loss_cls or dict(type='mmrank.RaMBOLoss'))
        super().__init__(*args, loss_cls=loss_cls, **kwargs)
        self.denoising_loss = MODELS.build(
            {'use_sigmoid': True, **loss_cls, 'memory_batches': 0})

    def _loss_dn_single(self, dn_cls_scores: Tensor, dn_bbox_preds: Tensor,
                        *args: Any, **kwargs: Any) -> tuple:
        if dn_cls_scores.shape[0] * dn_cls_scores.shape[1] == 0:
            return self._loss_without_denoising(dn_cls_scores, dn_bbox_preds)
        with replaced_loss(self, self.denoising_loss):
            return super()._loss_dn_single(
                dn_cls_scores, dn_bbox_preds, *args, **kwargs)

    def _loss_without_denoising(self, dn_cls_scores: Tensor,
                                dn_bbox_preds: Tensor) -> tuple:
        """No image has an object, but those of another process may.

        mmdet leaves the loss out then. It is the joined batch's, so this
        process sends the same messages in the same order as the others.
        """
        scores = dn_cls_scores.reshape(-1, self.cls_out_channels)
        nothing = scores.new_zeros(1)
        if self.sync_cls_avg_factor:
            reduce_mean(nothing)
        loss_cls = self.denoising_loss(
            scores, nothing.new_zeros(0, dtype=torch.long))
        reduce_mean(nothing)
        zero = dn_bbox_preds.sum() * 0
        return loss_cls, zero, zero
