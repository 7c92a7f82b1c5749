"""L2-Net, the descriptor network of HardNet and AdaSample."""

from __future__ import annotations

import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor, nn

from mmrank.registry import MODELS


@MODELS.register_module()
class L2Net(BaseModule):
    """Patches to descriptors of unit length.

    3x3 convolutions 32-32-64/2-64-128/2-128 and an 8x8 one to the descriptor,
    none with a bias; batch norm without affine parameters after each; ReLU
    after all but the last.

    Args:
        out_channels (int): the width D of a descriptor.
        widths (tuple[int]): channels of the three resolutions. Smaller ones
            make a quicker network for small machines.
        dropout (float): probability before the last convolution; 0 is the
            architecture as published with L2-Net.
        init_cfg (dict, optional): MMEngine's; None is orthogonal weights of
            gain 0.6, as HardNet starts from.

    Shape:
        Input (N, 1, 32, 32), normalised per patch (zero mean, unit variance;
        :class:`PatchDataPreprocessor`). Output (N, D), unit rows; a row is 0
        only where the last layer gives exactly 0. N may be 0.

    Raises:
        ValueError: for patches of another size.

    Example:
        >>> import torch
        >>> L2Net().eval()(torch.randn(2, 1, 32, 32)).shape
        torch.Size([2, 128])
    """

    patch_size = 32

    def __init__(self,
                 out_channels: int = 128,
                 widths: tuple[int, int, int] = (32, 64, 128),
                 dropout: float = 0.0,
                 init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.out_channels = out_channels
        a, b, c = widths
        plan = [(1, a, 1), (a, a, 1), (a, b, 2), (b, b, 1), (b, c, 2),
                (c, c, 1)]
        layers: list[nn.Module] = []
        for inside, outside, stride in plan:
            layers += [
                nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outside, affine=False),
                nn.ReLU(inplace=True)
            ]
        layers += [
            nn.Dropout(dropout),
            nn.Conv2d(c, out_channels, 8, bias=False),
            nn.BatchNorm2d(out_channels, affine=False)
        ]
        self.layers = nn.Sequential(*layers)
        if init_cfg is None:
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.orthogonal_(module.weight, gain=0.6)

    def forward(self, patches: Tensor) -> Tensor:
        """Descriptors of the patches, in the order given."""
        if patches.shape[1:] != (1, self.patch_size, self.patch_size):
            raise ValueError(
                f'L2Net takes patches of shape (N, 1, {self.patch_size}, '
                f'{self.patch_size}), but got {tuple(patches.shape)}; set '
                f'patch_size={self.patch_size} in the data set')
        return F.normalize(self.layers(patches).flatten(1).float(), dim=1)
