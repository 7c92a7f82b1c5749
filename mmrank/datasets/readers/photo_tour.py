"""UBC PhotoTour (the Brown data set): Liberty, Notre Dame, Yosemite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from mmrank.files.images import read_grey
from mmrank.files.text import read_text
from mmrank.registry import DATASETS

from .patch_classes import PatchClassDataset, resize_tiles

TILE = 64
MOSAIC = 1024


class _Scene(NamedTuple):
    patches: np.ndarray
    point_ids: np.ndarray
    pairs: np.ndarray
    matches: np.ndarray


@DATASETS.register_module()
class PhotoTourDataset(PatchClassDataset):
    """One scene, as classes to train on or as pairs to test on.

    The tree is that of the distributed archives::

        data_root/scene/patches0000.bmp ...     1024x1024, 16x16 tiles of 64
        data_root/scene/info.txt                a row a patch: 3-D point, ...
        data_root/scene/m50_100000_100000_0.txt test pairs

    Patches are numbered row by row through the mosaics in the order of
    their names; the last one may end in empty tiles.

    Args:
        data_root (str): the folder of the scenes.
        scene (str | Sequence[str]): 'liberty', 'notredame', 'yosemite', or
            the name of another folder in this format; of several scenes the
            classes, or the test pairs, follow each other. No class, and no
            pair, spans two scenes.
        test_mode (bool): False, items are classes
            (:class:`PatchClassDataset`); True, items are the test pairs:
            ``dict(inputs=(2, 1, S, S) uint8, data_samples=dict(match=bool,
            pair_index=int))``.
        patch_size (int): S; tiles are resized by area averaging.
        pairs_file (str): test pairs, columns ``patch point 0 patch point 0``.
        patches_per_class (int, optional), fill_by_rotation, min_patches,
            seed: see :class:`PatchClassDataset`.

    Raises:
        FileNotFoundError: for a missing folder or file, named.
        ValueError: for a file that is not in the format, named with the
            line.
    """

    METAINFO = dict(dataset_type='photo_tour')

    def __init__(self,
                 data_root: str,
                 scene: str | Sequence[str],
                 test_mode: bool = False,
                 patch_size: int = 32,
                 pairs_file: str = 'm50_100000_100000_0.txt',
                 patches_per_class: int | None = 15,
                 fill_by_rotation: bool = False,
                 min_patches: int = 2,
                 seed: int = 0) -> None:
        scenes = [scene] if isinstance(scene, str) else list(scene)
        if not scenes or len(set(scenes)) < len(scenes):
            raise ValueError('scene must name scenes, each once, but got '
                             f'{scene!r}')
        self.scene = scene
        self.test_mode = test_mode
        self.metainfo = dict(self.METAINFO, scene=scene)
        found = [self._read(Path(data_root) / name, patch_size, pairs_file)
                 for name in scenes]
        patches = np.concatenate([part.patches for part in found])
        if test_mode:
            starts = np.cumsum([0, *(len(part.patches) for part in found)])
            self.patches = patches
            self.pairs = np.concatenate([
                part.pairs + start for part, start in zip(found, starts)])
            self.matches = np.concatenate([part.matches for part in found])
            return
        point_ids = _disjoint([part.point_ids for part in found])
        super().__init__(
            patches,
            point_ids,
            patches_per_class=patches_per_class,
            fill_by_rotation=fill_by_rotation,
            min_patches=min_patches,
            seed=seed)

    def _read(self, folder: Path, patch_size: int,
              pairs_file: str) -> _Scene:
        if not folder.is_dir():
            raise FileNotFoundError(
                f'no folder {folder}; data_root={str(folder.parent)!r} must '
                f'hold the unpacked archive of scene={folder.name!r}')
        point_ids = read_info(folder / 'info.txt')
        patches = read_mosaics(folder, len(point_ids), patch_size)
        pairs, matches = read_pairs(
            folder / pairs_file, point_ids) if self.test_mode else (
                np.zeros((0, 2), np.int64), np.zeros(0, bool))
        return _Scene(patches, point_ids, pairs, matches)

    def __len__(self) -> int:
        """Number of classes, or of test pairs."""
        return len(self.pairs) if self.test_mode else super().__len__()

    def __getitem__(self, index: int) -> dict:
        if not self.test_mode:
            return super().__getitem__(index)
        tiles = torch.from_numpy(self.patches[self.pairs[index]])
        sample = dict(match=bool(self.matches[index]), pair_index=int(index))
        return dict(inputs=tiles[:, None], data_samples=sample)


def _disjoint(point_ids: Sequence[np.ndarray]) -> np.ndarray:
    """The points of several scenes, moved so that none is shared.

    Those of the first keep their numbers.
    """
    moved, start = [], None
    for ids in point_ids:
        low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
        shift = 0 if start is None else start - low
        moved.append(ids + shift)
        start = high + shift + 1
    return np.concatenate(moved)


def _need(path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f'{path} is missing; is {path.parent} a '
                                'PhotoTour scene?')
    return path


def read_info(path: Path) -> np.ndarray:
    """The 3-D point of each patch, int64, from the first column."""
    ids = []
    for number, line in enumerate(read_text(_need(path)).splitlines(), 1):
        if not line.strip():
            continue
        try:
            ids.append(int(line.split()[0]))
        except ValueError:
            raise ValueError(f'{path}, line {number}: expected a 3-D point '
                             f'id first, but got {line!r}') from None
    return np.array(ids, np.int64)


def read_mosaics(folder: Path, count: int, size: int) -> np.ndarray:
    """The first ``count`` tiles, uint8, shape (count, size, size)."""
    files = sorted(folder.glob('patches*.bmp'))
    if not files:
        raise FileNotFoundError(f'{folder} holds no patches*.bmp mosaics')
    side = MOSAIC // TILE
    have = len(files) * side * side
    if not have - side * side < count <= have:
        raise ValueError(f'{folder}: info.txt names {count} patches, but '
                         f'{len(files)} mosaics hold {have}')
    pieces = []
    for path in files:
        image = read_grey(path)
        if image is None or image.shape != (MOSAIC, MOSAIC):
            shape = None if image is None else image.shape
            raise ValueError(f'{path}: expected a {MOSAIC}x{MOSAIC} mosaic, '
                             f'but read {shape}')
        tiles = image.reshape(side, TILE, side, TILE).swapaxes(1, 2)
        pieces.append(resize_tiles(tiles.reshape(-1, TILE, TILE), size))
    return np.concatenate(pieces)[:count]


def read_pairs(path: Path,
               point_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Test pairs, int64 (N, 2), and whether each matches, bool (N,)."""
    rows = [line.split() for line in read_text(_need(path)).splitlines()
            if line.strip()]
    try:
        table = np.array([[int(cell) for cell in row[:6]] for row in rows],
                         np.int64).reshape(len(rows), 6)
    except ValueError:
        raise ValueError(f'{path}: every row must start with six integers: '
                         'patch, point, 0, patch, point, 0') from None
    pairs, points = table[:, [0, 3]], table[:, [1, 4]]
    wrong = (pairs < 0) | (pairs >= len(point_ids))
    wrong |= point_ids[pairs.clip(0, len(point_ids) - 1)] != points
    if wrong.any():
        line = int(wrong.any(1).argmax())
        raise ValueError(f'{path}, row {line + 1}: {" ".join(rows[line])} '
                         'does not agree with info.txt; is it of this scene?')
    return pairs, points[:, 0] == points[:, 1]
