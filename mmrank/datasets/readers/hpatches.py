"""HPatches: strips of corresponding patches from photo sequences."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from mmrank.files.images import read_grey
from mmrank.files.text import read_text
from mmrank.registry import DATASETS

from .patch_classes import PatchClassDataset, resize_tiles

TILE = 65
STRENGTHS = dict(e='easy', h='hard', t='tough')
STRIPS = ('ref', *(f'{kind}{image}' for kind in STRENGTHS
                   for image in range(1, 6)))


@DATASETS.register_module()
class HPatchesDataset(PatchClassDataset):
    """The sequences of a split, as classes to train on or strips to test on.

    The tree is the release's, beside the benchmark's definitions::

        data_root/i_*/, data_root/v_*/  ref.png, e1..e5, h1..h5, t1..t5.png
        splits_file                     {"a": {"test": [...], "train": [...]}}
        tasks_dir/verif_pos_split-a.csv, verif_neg_{inter,intra}_split-a.csv,
                  retr_{queries,distractors}_split-a.csv

    A strip is a column of 65x65 patches; patch i of every strip of a
    sequence shows the same place.

    Args:
        data_root (str): the folder of the sequences.
        split (str): 'a', 'b', 'c', 'full', 'illum', 'view', or another of
            the splits file.
        test_mode (bool): False, items are classes of the split's training
            sequences, 16 patches each; True, an item is one strip of its
            test sequences: ``dict(inputs=(N, 1, S, S) uint8,
            data_samples=dict(sequence, strip))``.
        patch_size (int): S; patches are resized by area averaging.
        splits_file (str, optional): default ``data_root/splits.json``.
        tasks_dir (str, optional): default ``data_root/tasks``; read by
            ``HPatchesMetric``, which finds it in ``metainfo``.
        patches_per_class (int, optional), seed: see
            :class:`PatchClassDataset`.

    Raises:
        FileNotFoundError: for a missing folder or file, named.
        ValueError: for an unknown split, a split without training
            sequences, a strip that is no column of 65x65 patches, or strips
            of different length in one sequence.
    """

    METAINFO = dict(dataset_type='hpatches')

    def __init__(self,
                 data_root: str,
                 split: str = 'a',
                 test_mode: bool = False,
                 patch_size: int = 32,
                 splits_file: str | None = None,
                 tasks_dir: str | None = None,
                 patches_per_class: int | None = None,
                 seed: int = 0) -> None:
        root = Path(data_root)
        refuse_full_images(root)
        self.test_mode = test_mode
        self.patch_size = patch_size
        names = read_split(
            Path(splits_file) if splits_file else root / 'splits.json', split,
            'test' if test_mode else 'train')
        self.folders = [root / name for name in names]
        for folder in self.folders:
            if not folder.is_dir():
                raise FileNotFoundError(f'no folder {folder}, which split '
                                        f'{split!r} names')
        self.metainfo = dict(
            self.METAINFO,
            split=split,
            sequences=list(names),
            tasks_dir=str(tasks_dir or root / 'tasks'))
        if test_mode:
            self.items = [(folder, strip) for folder in self.folders
                          for strip in STRIPS]
            return
        patches, point_ids = self._classes()
        super().__init__(
            patches, point_ids, patches_per_class=patches_per_class,
            seed=seed)

    def _classes(self) -> tuple[np.ndarray, np.ndarray]:
        patches, ids, start = [], [], 0
        for folder in self.folders:
            strips = [self._read(folder, strip) for strip in STRIPS]
            lengths = {len(strip) for strip in strips}
            if len(lengths) > 1:
                raise ValueError(f'{folder}: strips of different length: '
                                 f'{sorted(lengths)}')
            patches += strips
            ids.append(np.tile(np.arange(len(strips[0])) + start,
                               len(STRIPS)))
            start += len(strips[0])
        return np.concatenate(patches), np.concatenate(ids)

    def _read(self, folder: Path, strip: str) -> np.ndarray:
        return resize_tiles(read_strip(folder / f'{strip}.png'),
                            self.patch_size)

    def __len__(self) -> int:
        """Number of classes, or of test strips."""
        return len(self.items) if self.test_mode else super().__len__()

    def __getitem__(self, index: int) -> dict:
        if not self.test_mode:
            return super().__getitem__(index)
        folder, strip = self.items[index]
        tiles = torch.from_numpy(self._read(folder, strip))
        return dict(
            inputs=tiles[:, None],
            data_samples=dict(sequence=folder.name, strip=strip))


def refuse_full_images(root: Path) -> None:
    """Raises where a folder holds the other release, of whole images.

    Raises:
        ValueError: it holds sequences of images and no patches.
    """
    images = next(iter(sorted(root.glob('*/1.ppm'))), None)
    if images is not None and not any(root.glob('*/ref.png')):
        raise ValueError(
            f'{root} holds the full image sequences of HPatches, such as '
            f'{images}; the patches, strips called ref.png, e1.png and so '
            'on, are in the archive hpatches-release.tar.gz')


def read_split(path: Path, split: str, part: str) -> list[str]:
    """The sequence names of one part of a split."""
    if not path.is_file():
        raise FileNotFoundError(f'{path} is missing; set splits_file to the '
                                "benchmark's splits.json")
    try:
        splits = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f'{path} is no JSON: {error}') from None
    if split not in splits:
        raise ValueError(f'split must be one of {sorted(splits)}, but got '
                         f'{split!r}')
    if part not in splits[split]:
        raise ValueError(f'split {split!r} has no {part} sequences; those '
                         'that have: '
                         f'{sorted(k for k in splits if part in splits[k])}')
    return splits[split][part]


def read_strip(path: Path) -> np.ndarray:
    """The patches of a strip, uint8, shape (N, 65, 65)."""
    if not path.is_file():
        raise FileNotFoundError(f'{path} is missing')
    image = read_grey(path)
    if image is None or image.shape[1] != TILE or image.shape[0] % TILE:
        shape = None if image is None else image.shape
        raise ValueError(f'{path}: expected a column of {TILE}x{TILE} '
                         f'patches, but read {shape}')
    return image.reshape(-1, TILE, TILE)
