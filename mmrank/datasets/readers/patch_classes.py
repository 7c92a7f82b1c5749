"""Classes of matching patches: what AdaSample draws from."""

from __future__ import annotations

import cv2
import numpy as np
import torch
from torch.utils.data import Dataset


def resize_tiles(tiles: np.ndarray, size: int) -> np.ndarray:
    """Tiles (N, H, W) uint8 to (N, size, size), each by itself."""
    if tiles.shape[1:] == (size, size):
        return np.ascontiguousarray(tiles)
    resized = [
        cv2.resize(tile, (size, size), interpolation=cv2.INTER_AREA)
        for tile in tiles
    ]
    return np.stack(resized) if resized else np.zeros((0, size, size),
                                                      np.uint8)


class PatchClassDataset(Dataset):
    """An item is a class: all of its patches, in fixed slots.

    Args:
        patches (ndarray): uint8, shape (N, S, S).
        point_ids (ndarray): the class of each patch, shape (N,); any
            integers, gaps allowed.
        patches_per_class (int, optional): slots k. A larger class keeps a
            random choice of k patches, fixed by the seed; a smaller one is
            padded, or filled. None: the size of the largest class.
        fill_by_rotation (bool): fill a class up to k by randomly rotated
            copies of its patches ("*" in the paper). Angles are fixed by the
            seed, so descriptors of a slot stay comparable over an epoch.
        min_patches (int): smaller classes are left out.
        seed (int): fixes choice and angles.

    An item is ``dict(inputs=(k, 1, S, S) uint8, data_samples=dict(
    class_index, class_id, valid=(k,) bool))``; ``valid`` is False in padding.

    Raises:
        ValueError: when no class is left, or ``patches_per_class < 2``.
    """

    def __init__(self,
                 patches: np.ndarray,
                 point_ids: np.ndarray,
                 *,
                 patches_per_class: int | None = None,
                 fill_by_rotation: bool = False,
                 min_patches: int = 2,
                 seed: int = 0) -> None:
        if patches_per_class is not None and patches_per_class < 2:
            raise ValueError('patches_per_class must be at least 2, but got '
                             f'{patches_per_class!r}')
        if len(patches) != len(point_ids):
            raise ValueError(f'{len(patches)} patches, but '
                             f'{len(point_ids)} point ids')
        self.patches = patches
        ids, counts = np.unique(point_ids, return_counts=True)
        groups = np.split(np.argsort(point_ids, kind='stable'),
                          np.cumsum(counts)[:-1])
        kept = np.flatnonzero(counts >= min_patches)
        if not len(kept):
            raise ValueError(f'no class has min_patches={min_patches} patches '
                             f'or more ({len(ids)} classes)')
        self.class_ids = ids[kept]
        self.slots = patches_per_class or int(counts.max())
        rng = np.random.default_rng(seed)
        self._table = np.full((len(kept), self.slots), -1, np.int64)
        self._angles = np.zeros((len(kept), self.slots), np.float32)
        for row, index in enumerate(kept):
            self._place(row, groups[index], fill_by_rotation, rng)

    def _place(self, row: int, group: np.ndarray, fill: bool,
               rng: np.random.Generator) -> None:
        if len(group) > self.slots:
            group = np.sort(rng.choice(group, self.slots, replace=False))
        have = len(group)
        self._table[row, :have] = group
        if fill and have < self.slots:
            extra = np.arange(have, self.slots)
            self._table[row, have:] = group[extra % have]
            self._angles[row, have:] = rng.uniform(0, 360, len(extra))

    def __len__(self) -> int:
        """Number of classes."""
        return len(self._table)

    def __getitem__(self, index: int) -> dict:
        sources = self._table[index]
        tiles = self.patches[sources.clip(0)]
        for slot in np.flatnonzero(self._angles[index]):
            tiles[slot] = _rotated(tiles[slot], self._angles[index, slot])
        sample = dict(
            class_index=int(index),
            class_id=int(self.class_ids[index]),
            valid=torch.from_numpy(sources >= 0))
        return dict(
            inputs=torch.from_numpy(tiles)[:, None], data_samples=sample)


def _rotated(tile: np.ndarray, angle: float) -> np.ndarray:
    centre = (tile.shape[0] - 1) / 2
    rotation = cv2.getRotationMatrix2D((centre, centre), float(angle), 1.0)
    return cv2.warpAffine(
        tile, rotation, tile.shape[::-1], borderMode=cv2.BORDER_REFLECT_101)
