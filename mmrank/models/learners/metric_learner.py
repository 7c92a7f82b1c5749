from __future__ import annotations

from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from torch import Tensor

from mmrank.registry import MODELS


@MODELS.register_module()
class MetricLearner(BaseModel):
    """A model that maps images to embeddings: backbone, neck, head.

    Args:
        backbone (dict): a registered backbone; returns a tensor or a
            sequence of them.
        head (dict): a registered head with ``forward``, ``loss`` and
            ``predict``, such as :class:`MetricLearningHead`.
        neck (dict, optional): a registered module between the two.
        data_preprocessor (dict, optional): by default MMEngine's
            ``ImgDataPreprocessor``, which stacks images and normalises where
            told to.
        init_cfg (dict, optional): of ``BaseModule``.

    Example:
        >>> model = dict(
        ...     type='mmrank.MetricLearner',
        ...     data_preprocessor=dict(
        ...         type='ImgDataPreprocessor', bgr_to_rgb=True,
        ...         mean=[123.675, 116.28, 103.53],
        ...         std=[58.395, 57.12, 57.375]),
        ...     backbone=dict(type='mmrank.TimmBackbone',
        ...                   model_name='resnet50', pretrained=True),
        ...     head=dict(
        ...         type='mmrank.MetricLearningHead', in_channels=2048,
        ...         embedding_size=512, num_classes=100,
        ...         loss=dict(type='mmrank.ProxyAnchorLoss')))
    """

    def __init__(self,
                 backbone: dict,
                 head: dict,
                 neck: dict | None = None,
                 data_preprocessor: dict | None = None,
                 init_cfg: dict | None = None) -> None:
        super().__init__(
            data_preprocessor or dict(type='mmengine.ImgDataPreprocessor'),
            init_cfg)
        self.backbone = MODELS.build(backbone)
        self.neck = None if neck is None else MODELS.build(neck)
        self.head = MODELS.build(head)

    def extract_feat(self, inputs: Tensor) -> Tensor | tuple[Tensor, ...]:
        """The features that the head takes, for images (B, 3, H, W)."""
        feats = self.backbone(inputs)
        return feats if self.neck is None else self.neck(feats)

    def forward(
        self,
        inputs: Tensor,
        data_samples: list[BaseDataElement] | None = None,
        mode: str = 'tensor'
    ) -> Tensor | dict[str, Tensor] | list[BaseDataElement]:
        """Embeddings, losses or predictions.

        Args:
            inputs (Tensor): shape (B, 3, H, W), preprocessed.
            data_samples (list, optional): B samples; 'loss' needs their
                ``gt_label``.
            mode (str): 'tensor', 'loss' or 'predict'.

        Returns:
            Embeddings of shape (B, D) for 'tensor', a dict of losses for
            'loss', a list of B samples with ``pred_embedding`` for 'predict'.
        """
        if mode not in ('tensor', 'loss', 'predict'):
            raise ValueError("mode must be 'tensor', 'loss' or 'predict', "
                             f'but got {mode!r}')
        feats = self.extract_feat(inputs)
        if mode == 'tensor':
            return self.head(feats)
        if mode == 'predict':
            return self.head.predict(feats, data_samples)
        if data_samples is None:
            raise ValueError("mode 'loss' needs data_samples")
        return self.head.loss(feats, data_samples)
