"""Descriptors of keypoints, for users of OpenCV and kornia."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor, nn

from mmrank.datasets.transforms import (
    build_pyramid,
    cut_patch,
    keypoint_frame,
)
from mmrank.files import load_weights
from mmrank.registry import MODELS


def init_descriptor(config: str | Config,
                    checkpoint: str | None = None,
                    device: str = 'cpu') -> nn.Module:
    """A descriptor model in evaluation mode.

    Args:
        config (str | Config): a descriptor config.
        checkpoint (str, optional): weights; None leaves the initial ones.
        device (str): where it runs.

    Raises:
        FileNotFoundError: for a missing config or checkpoint.
        ValueError: for a damaged checkpoint, or one that could run code.
    """
    if isinstance(config, str):
        config = Config.fromfile(config)
    model = MODELS.build(config.model)
    if checkpoint is not None:
        load_weights(model, checkpoint)
    return model.to(device).eval()


def keypoint_frames(keypoints: Sequence | np.ndarray | Tensor,
                    *,
                    magnification: float = 5.0,
                    size: float = 12.0) -> np.ndarray:
    """What maps the square [-1, 1]^2 to each keypoint's patch.

    Args:
        keypoints: see :func:`describe`.
        magnification (float): the side of a patch in keypoint sizes.
        size (float): of keypoints that have none.

    Returns:
        ndarray: float64, shape (N, 3, 3).

    Raises:
        ValueError: for another shape.

    Example:
        >>> frames = keypoint_frames([[10., 20., 4.]], magnification=5.)
        >>> bool((frames[0] == [[10, 0, 10], [0, 10, 20], [0, 0, 1]]).all())
        True
    """
    if len(keypoints) and isinstance(keypoints[0], cv2.KeyPoint):
        keypoints = [[*k.pt, k.size, max(k.angle, 0.)] for k in keypoints]
    if isinstance(keypoints, Tensor):
        keypoints = keypoints.detach().cpu().numpy()
    table = np.asarray(keypoints, np.float64)
    if table.size == 0:
        return np.zeros((0, 3, 3))
    if not np.isfinite(table).all():
        wrong = np.flatnonzero(~np.isfinite(table.reshape(
            -1, table.shape[-1])).all(1))[0]
        raise ValueError('keypoints must be finite, but row '
                         f'{wrong} holds NaN or infinity')
    if table.ndim == 4 and len(table) == 1:
        table = table[0]
    if table.ndim == 3 and table.shape[1:] == (2, 3):
        last = np.broadcast_to([0., 0., 1.], (len(table), 1, 3))
        return np.concatenate([table, last], 1)
    if table.ndim != 2 or table.shape[1] not in (2, 3, 4):
        raise ValueError(
            'keypoints must be cv2.KeyPoint objects, an array (N, 2..4) of '
            'x, y, size, angle, or local affine frames (N, 2, 3), but have '
            f'shape {table.shape}')
    full = np.tile([0., 0., size, 0.], (len(table), 1))
    full[:, :table.shape[1]] = table
    if (full[:, 2] <= 0).any():
        wrong = int((full[:, 2] <= 0).argmax())
        raise ValueError('the size of a keypoint must be > 0, but that of '
                         f'keypoint {wrong} is {full[wrong, 2]:g}')
    return np.stack([
        keypoint_frame(x, y, magnification * s / 2, angle)
        for x, y, s, angle in full
    ])


def describe(image: np.ndarray,
             keypoints: Sequence | np.ndarray | Tensor,
             model: Any,
             *,
             magnification: float = 5.0,
             size: float = 12.0) -> np.ndarray:
    """Descriptors of an image at given keypoints.

    Args:
        image (ndarray): (H, W) grey, or (H, W, 3) RGB; uint8, or float of
            any range.
        keypoints: ``cv2.KeyPoint`` objects; or an array (N, 2), (N, 3) or
            (N, 4) of x, y, size (the diameter, as in OpenCV) and angle
            (degrees); or kornia's local affine frames, (N, 2, 3) or
            (1, N, 2, 3), which are taken as they are. All finite, sizes
            > 0.
        model (nn.Module): of :func:`init_descriptor`.
        magnification (float): the side of a patch in keypoint sizes; 5 as in
            HPatches and in PhotoPatches.
        size (float): of keypoints given as (N, 2).

    Returns:
        ndarray: float32, shape (N, 128), unit rows, but zero where a patch
        is of one grey value; (0, 128) for none. Every keypoint gets a row:
        beyond the border the image is mirrored.

    Raises:
        ValueError: for an image or keypoints of another shape or not finite,
            an empty image, or a size that is not above 0.
    """
    image = np.asarray(image)
    if image.ndim == 3 and image.shape[2] == 3:
        image = image @ np.array([.299, .587, .114], np.float32)
    if image.ndim != 2 or image.size == 0:
        raise ValueError('image must have shape (H, W) or (H, W, 3), but has '
                         f'{image.shape}')
    image = np.ascontiguousarray(image, np.float32)
    if not np.isfinite(image).all():
        raise ValueError('image must be finite, but holds NaN or infinity')
    frames = keypoint_frames(keypoints, magnification=magnification, size=size)
    width = model.backbone.out_channels
    if not len(frames):
        return np.zeros((0, width), np.float32)
    pyramid = build_pyramid(image)
    side = model.data_preprocessor.patch_size
    tiles = np.stack([cut_patch(pyramid, frame, side) for frame in frames])
    weights = next(model.parameters(), torch.zeros(0))
    patches = torch.from_numpy(tiles)[:, None].to(weights.device)
    with torch.no_grad():
        rows = [model.describe(part) for part in patches.split(1024)]
    return torch.cat(rows).cpu().numpy()


def match(first: np.ndarray, second: np.ndarray,
          ratio: float | None = None) -> np.ndarray:
    """Mutual nearest neighbours.

    Args:
        first (ndarray): shape (N, D).
        second (ndarray): shape (M, D).
        ratio (float, optional): keep a match only if its distance is below
            so much of that to the second nearest.

    Returns:
        ndarray: int64, shape (n, 2): rows of ``first`` and ``second``, nearer
        matches first.

    Raises:
        ValueError: for descriptors of two widths, or not finite.

    Example:
        >>> import numpy as np
        >>> match(np.eye(3)[:2], np.eye(3)[[1, 0]]).tolist()
        [[0, 1], [1, 0]]
    """
    if not len(first) or not len(second):
        return np.zeros((0, 2), np.int64)
    x, y = (torch.from_numpy(np.ascontiguousarray(side)).double()
            for side in (first, second))
    if x.dim() != 2 or y.dim() != 2 or x.shape[1] != y.shape[1]:
        raise ValueError('descriptors must have shapes (N, D) and (M, D), '
                         f'but have {tuple(x.shape)} and {tuple(y.shape)}')
    if not (x.isfinite().all() and y.isfinite().all()):
        raise ValueError('descriptors must be finite, but hold NaN or '
                         'infinity')
    table = torch.cdist(x, y)
    nearest = table.argmin(1)
    keep = table.argmin(0)[nearest] == torch.arange(len(x))
    if ratio is not None and len(y) > 1:
        two = table.topk(2, largest=False).values
        keep &= two[:, 0] < ratio * two[:, 1]
    rows = keep.nonzero().flatten()
    rows = rows[table[rows, nearest[rows]].argsort(stable=True)]
    return torch.stack([rows, nearest[rows]], 1).numpy()
