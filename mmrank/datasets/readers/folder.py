"""Images in folders, one folder a class."""

from __future__ import annotations

import os
import os.path as osp
from collections.abc import Iterable, Sequence
from typing import Any

from mmrank.registry import DATASETS

from .retrieval import RetrievalDataset


@DATASETS.register_module()
class FolderRetrievalDataset(RetrievalDataset):
    """One folder a class: ``data_root/class/image``.

    Args:
        data_root (str): the folder of the classes.
        extensions (tuple[str]): of the files that are images.
        kwargs: of :class:`RetrievalDataset`.
    """

    layout = 'data_root/class name/any name.jpg'
    needed = ('.', )

    def __init__(self,
                 data_root: str = '',
                 extensions: Sequence[str] = ('.jpg', '.jpeg', '.png', '.bmp',
                                              '.webp'),
                 **kwargs: Any) -> None:
        self.extensions = tuple(e.lower() for e in extensions)
        super().__init__(data_root, **kwargs)

    def load_items(self) -> Iterable[dict]:
        found = False
        for name in sorted(os.listdir(self.data_root or '.')):
            folder = osp.join(self.data_root, name)
            for file in sorted(os.listdir(folder)) if osp.isdir(
                    folder) else ():
                if file.lower().endswith(self.extensions):
                    found = True
                    yield dict(img_path=osp.join(name, file), name=name)
        if not found:
            raise ValueError(
                f'{type(self).__name__} found no image ('
                f'{" ".join(self.extensions)}) in the folders right below '
                f'{self.data_root!r}; expected:\n{self.layout}')
