from __future__ import annotations

from mmengine.model import BaseModule
from torch import Tensor, nn

from mmrank.registry import MODELS


@MODELS.register_module()
class SmallConvNet(BaseModule):
    """A few 3x3 convolutions, for small images and machines without a GPU.

    Each stage is convolution, batch norm, ReLU and halves the resolution,
    the last one excepted.

    Args:
        in_channels (int): channels of the image.
        widths (tuple[int]): channels of the stages.
        init_cfg (dict, optional): MMEngine's.

    Shape:
        Input (B, in_channels, H, W); output a tuple of one tensor,
        (B, widths[-1], h, w), with ``h = H / 2^(stages - 1)`` rounded up.

    Example:
        >>> import torch
        >>> SmallConvNet()(torch.randn(2, 1, 32, 32))[0].shape
        torch.Size([2, 128, 4, 4])
    """

    def __init__(self,
                 in_channels: int = 1,
                 widths: tuple[int, ...] = (16, 32, 64, 128),
                 init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        layers: list[nn.Module] = []
        for number, width in enumerate(widths, 1):
            layers += [
                nn.Conv2d(
                    in_channels,
                    width,
                    3,
                    stride=1 if number == len(widths) else 2,
                    padding=1,
                    bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True)
            ]
            in_channels = width
        self.layers = nn.Sequential(*layers)
        self.out_channels = in_channels

    def forward(self, inputs: Tensor) -> tuple[Tensor]:
        """The feature map of images."""
        return (self.layers(inputs), )
