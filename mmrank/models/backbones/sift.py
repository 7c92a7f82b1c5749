"""SIFT on given patches: the reference row of descriptor tables."""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from torch import Tensor

from mmrank.registry import MODELS


@MODELS.register_module()
class SIFTPatches(BaseModule):
    """OpenCV's SIFT descriptor of the whole patch, upright; not trained.

    Args:
        patch_size (int): the side S of the patches; the 4x4 cells cover it.
        root (bool): the square root of the L1-normalised histogram
            (RootSIFT).

    Shape:
        Input (N, 1, S, S), any grey range. Output (N, 128), float32, unit
        rows.
    """

    out_channels = 128

    def __init__(self, patch_size: int = 64, root: bool = False,
                 init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        self.patch_size = patch_size
        self.root = root
        self._sift = cv2.SIFT_create()  # type: ignore[attr-defined]

    def forward(self, patches: Tensor) -> Tensor:
        """Descriptors of the patches, in the order given."""
        low = patches.amin((1, 2, 3), keepdim=True)
        span = patches.amax((1, 2, 3), keepdim=True) - low
        grey = ((patches - low) / span.clamp_min(1e-6) * 255).byte()
        rows = [self._describe(tile) for tile in grey[:, 0].cpu().numpy()]
        stacked = np.stack(rows) if rows else np.zeros((0, 128), np.float32)
        table = torch.from_numpy(stacked).to(patches.device)
        if self.root:
            table = F.normalize(table, p=1, dim=1).sqrt()
        return F.normalize(table, dim=1)

    def _describe(self, tile: np.ndarray) -> np.ndarray:
        centre = (tile.shape[0] - 1) / 2
        # a cell is 3 * size / 2 wide, four of them cover the patch
        point = cv2.KeyPoint(centre, centre, tile.shape[0] / 6, 0)
        _, rows = self._sift.compute(tile, [point])
        return rows[0]
