"""What every retrieval data set has: a checked tree, numbered classes.

Every item has ``img_path``, ``gt_label`` (contiguous from 0 within the
split), ``sample_idx`` and, where the source has them, ``super_label`` and
``is_query``.
"""

from __future__ import annotations

import os.path as osp
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset


class RetrievalDataset(BaseDataset):
    """Base class: checks the tree, maps class names to labels.

    A subclass lists its items in :meth:`load_items`.

    Args:
        data_root (str): the folder of the data set.
        split (str): one of :attr:`splits`.
        pipeline (Sequence): transforms, such as
            :class:`mmrank.datasets.LoadImage`.
        kwargs: of MMEngine's ``BaseDataset``.

    Raises:
        FileNotFoundError: if the tree is not as :attr:`layout` says.
        ValueError: on an unknown split or a faulty list.
    """

    #: The splits there are.
    splits: Sequence[str] = ('train', 'test')
    #: How the tree must look; shown where it does not.
    layout = ''
    #: Files and folders that must be there.
    needed: Sequence[str] = ()
    #: split -> (images, classes) of the complete data set.
    published: dict[str, tuple[int, int]] = {}

    def __init__(self,
                 data_root: str = '',
                 split: str = 'train',
                 pipeline: Sequence = (),
                 **kwargs: Any) -> None:
        if split not in self.splits:
            raise ValueError(f'split of {type(self).__name__} must be one of '
                             f'{tuple(self.splits)}, but got {split!r}')
        self.split = split
        super().__init__(
            data_root=data_root, pipeline=list(pipeline), **kwargs)

    def load_items(self) -> Iterable[dict]:
        """Items with ``img_path`` below the root and a ``name`` of class.

        Optional: ``super_name``, ``is_query``.
        """
        raise NotImplementedError

    def load_data_list(self) -> list[dict]:
        """The items with labels in the order of the sorted class names."""
        self._check_tree()
        items = [dict(item) for item in self.load_items()]
        if not items:
            of_split = '' if self.split is None else \
                f' of the split {self.split!r}'
            raise ValueError(f'{type(self).__name__} found no item{of_split} '
                             f'in {self.data_root!r}; expected:\n'
                             f'{self.layout}')
        classes = _number(items, 'name', 'gt_label')
        self._metainfo['classes'] = classes
        if 'super_name' in items[0]:
            self._metainfo['super_classes'] = _number(
                items, 'super_name', 'super_label')
        for item in items:
            if 'img_path' in item:
                item['img_path'] = osp.join(self.data_root, item['img_path'])
        return items

    def get_cat_ids(self, idx: int) -> list[int]:
        """The class of an item, for MMEngine's ``ClassBalancedDataset``."""
        return [int(self.get_data_info(idx)['gt_label'])]

    def get_labels(self, key: str = 'gt_label') -> np.ndarray:
        """``gt_label`` or ``super_label`` of all items, int64."""
        self.full_init()
        infos = [self.get_data_info(index) for index in range(len(self))]
        if infos and key not in infos[0]:
            raise ValueError(f'{type(self).__name__} has no {key!r}')
        return np.array([info[key] for info in infos], dtype=np.int64)

    def _check_tree(self) -> None:
        if self.needed and not osp.isdir(self.data_root or '.'):
            raise FileNotFoundError(
                f'{type(self).__name__}: there is no folder data_root='
                f'{self.data_root!r}; lay it out as\n{self.layout}')
        missing = [name for name in self.needed
                   if not osp.exists(osp.join(self.data_root, name))]
        if missing:
            raise FileNotFoundError(
                f'{type(self).__name__}: {self.data_root!r} lacks '
                f'{", ".join(missing)}; lay it out as\n{self.layout}')

    def _rows(self, name: str, *kinds: type, skip: int = 0) -> Iterator[list]:
        """Rows of a list below the root, each column of its kind.

        Args:
            name (str): the file.
            kinds (type): ``str`` or ``int``, one a column.
            skip (int): lines of heading.
        """
        path = osp.join(self.data_root, name)
        with open(path, encoding='utf-8') as file:
            for number, line in enumerate(file, 1):
                if number <= skip or not line.strip():
                    continue
                cells = line.split()
                try:
                    if len(cells) != len(kinds):
                        raise ValueError
                    yield [kind(cell) for kind, cell in zip(kinds, cells)]
                except ValueError:
                    wanted = ' '.join(kind.__name__ for kind in kinds)
                    raise ValueError(
                        f'{path}, line {number}: expected the columns '
                        f'"{wanted}", but got {line.strip()!r}') from None


def _number(items: list[dict], name: str, label: str) -> tuple[str, ...]:
    """Replace every name by its place among the sorted names."""
    names = sorted({item[name] for item in items})
    numbers = {text: number for number, text in enumerate(names)}
    for item in items:
        item[label] = numbers[item.pop(name)]
    return tuple(names)
