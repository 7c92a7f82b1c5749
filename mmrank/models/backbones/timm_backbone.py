from __future__ import annotations

import difflib
from functools import partial
from typing import Any

import torch
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.optional import need
from mmrank.registry import MODELS


@MODELS.register_module()
class TimmBackbone(BaseModule):
    """Any image model of timm as a backbone.

    It needs the package: ``pip install timm``.

    Args:
        model_name (str): timm's name, as ``'resnet50'``,
            ``'vit_small_patch16_224.dino'`` or ``'convnext_tiny'``.
        pretrained (bool): whether ``init_weights`` loads timm's pretrained
            weights, which timm downloads where it has them not. To build the
            model alone, as for a checkpoint, needs no download.
        pooled (bool, optional): whether timm's own pooling (a class token,
            attention pooling, the final norm) makes the features. By default
            models of tokens use theirs, and models with feature maps leave
            the pooling to the head.
        init_cfg (dict, optional): of ``BaseModule``.
        kwargs: passed to ``timm.create_model``, such as ``img_size``,
            ``in_chans`` or ``drop_path_rate``.

    Parameters that the features do not depend on are frozen.

    Attributes:
        out_channels (int): channels of the features, for the head's
            ``in_channels``.

    Raises:
        ImportError: if timm is missing.
        ValueError: for a name that timm does not know; near ones are
            suggested.
    """

    model: Any  # of timm's own classes

    def __init__(self,
                 model_name: str,
                 pretrained: bool = False,
                 pooled: bool | None = None,
                 init_cfg: dict | None = None,
                 **kwargs: Any) -> None:
        super().__init__(init_cfg)
        timm = need('timm', 'TimmBackbone', 'timm')
        if not timm.is_model(model_name):
            base = model_name.split('.')[0]
            near = timm.list_models(f'*{base}*')[:5] or \
                difflib.get_close_matches(base, timm.list_models(), 5)
            raise ValueError(f'timm knows no model {model_name!r}; '
                             f'near names: {near}')
        self.pretrained = pretrained
        self._create = partial(
            timm.create_model, model_name, num_classes=0, **kwargs)
        self.model = self._create()
        # timm has initialised it: MMEngine would call timm's own
        # init_weights after ours, over the pretrained weights
        self.model.is_init = True
        self.pooled = pooled
        image = torch.zeros(1, *self._input_size(**kwargs))
        self.out_channels = self._freeze_unused(image)

    def init_weights(self) -> None:
        """Loads what ``pretrained`` and ``init_cfg`` say, in this order."""
        if self.pretrained and not self.is_init:
            # a second model, since only timm's constructor adapts its
            # weights to the sizes and channels asked for
            self.model.load_state_dict(
                self._create(pretrained=True).state_dict())
        super().init_weights()

    def forward(self, inputs: Tensor) -> tuple[Tensor]:
        """The features of images.

        Args:
            inputs (Tensor): shape (B, 3, H, W).

        Returns:
            tuple[Tensor]: one tensor, a map (B, C, h, w), tokens (B, N, C)
            or pooled features (B, C).
        """
        feats = self.model.forward_features(inputs)
        if self.pooled or (self.pooled is None and feats.ndim == 3):
            feats = self.model.forward_head(feats, pre_logits=True)
        elif getattr(self.model, 'output_fmt', 'NCHW') == 'NHWC':
            feats = feats.permute(0, 3, 1, 2)
        return (feats, )

    def _input_size(self, in_chans: int = 3,
                    img_size: int | tuple[int, int] | None = None,
                    **kwargs: Any) -> tuple[int, ...]:
        size = img_size or self.model.default_cfg['input_size'][1:]
        return in_chans, *((size, size) if isinstance(size, int) else size)

    def _freeze_unused(self, image: Tensor) -> int:
        """Freeze what the features do not depend on, such as a norm behind a
        pooling that is left to the head: DDP would wait for its gradient.

        Returns:
            int: the features' channels.
        """
        training = self.model.training
        self.model.eval()
        feats, = self(image)
        parameters = list(self.model.parameters())
        gradients = torch.autograd.grad(
            feats.sum(), parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients):
            parameter.requires_grad_(gradient is not None)
        self.model.train(training)
        return feats.shape[-1] if feats.ndim == 3 else feats.shape[1]
