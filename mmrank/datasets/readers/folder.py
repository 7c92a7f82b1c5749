"""Images in folders, one folder a class."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from mmrank.files.images import find_images, image_suffixes
from mmrank.registry import DATASETS

from .retrieval import RetrievalDataset


@DATASETS.register_module()
class FolderRetrievalDataset(RetrievalDataset):
    """One folder a class: ``data_root/class/image``.

    Images in folders below belong to the class of the top folder. What is
    an image is told by :func:`mmrank.files.images.find_images`, for
    embedding and detection as well; a log line names what is left out.

    Args:
        data_root (str): the folder of the classes.
        extensions (Sequence[str], optional): of the files that are images;
            by default those of every format that Pillow reads.
        kwargs: of :class:`RetrievalDataset`.
    """

    layout = 'data_root/class name/any name.jpg'
    needed = ('.', )

    def __init__(self,
                 data_root: str = '',
                 extensions: Sequence[str] | None = None,
                 **kwargs: Any) -> None:
        self.extensions = extensions
        super().__init__(data_root, **kwargs)

    def load_items(self) -> Iterable[dict]:
        found = find_images(self.data_root or '.', self.extensions)
        items = []
        for path in found.images:
            name, _, inside = path.partition(os.sep)
            if inside:
                items.append(dict(img_path=path, name=name))
            else:
                found.leave_out(path, 'in no class folder')
        found.log()
        if not items:
            suffixes = self.extensions or image_suffixes()
            raise ValueError(
                f'{type(self).__name__} found no image ({" ".join(suffixes)})'
                f' in the folders below {self.data_root!r}; expected:\n'
                f'{self.layout}')
        return items
