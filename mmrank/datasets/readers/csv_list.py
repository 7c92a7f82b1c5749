"""Images listed in a CSV file."""

from __future__ import annotations

import csv
import os.path as osp
from collections.abc import Iterable, Iterator
from typing import Any

from mmrank.registry import DATASETS

from .retrieval import RetrievalDataset


@DATASETS.register_module()
class CSVRetrievalDataset(RetrievalDataset):
    """Items listed in a CSV file with a heading.

    Columns: ``path`` (below ``data_root``) and ``label``; optional
    ``super_label``, ``split`` and ``is_query`` (0 or 1). Labels may be any
    text.

    Args:
        csv_file (str): the list, below ``data_root``.
        split (str, optional): keep the rows of this ``split``; None keeps
            all.
        check_images (bool): refuse a row whose image does not exist. It
            takes microseconds a row on a local disk; False leaves it to the
            reading, for long lists on a slow file system.
        kwargs: of :class:`RetrievalDataset`.
    """

    layout = ('data_root/list.csv with the columns path,label and optionally '
              'super_label,split,is_query')

    def __init__(self,
                 data_root: str = '',
                 csv_file: str = 'list.csv',
                 split: str | None = None,
                 check_images: bool = True,
                 **kwargs: Any) -> None:
        self.needed = (csv_file, )
        self.check_images = check_images
        self.splits = (split, )  # type: ignore[assignment]
        super().__init__(
            data_root, split, **kwargs)  # type: ignore[arg-type]

    def load_items(self) -> Iterable[dict]:
        path = osp.join(self.data_root, self.needed[0])
        with open(path, newline='', encoding='utf-8-sig') as file:
            reader = csv.DictReader(_utf8_lines(file, path))
            columns = reader.fieldnames or []
            required = ['path', 'label'] + (['split'] if self.split else [])
            missing = [name for name in required if name not in columns]
            if missing:
                raise ValueError(f'{path!r} lacks the columns {missing}; it '
                                 f'has {columns}')
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(
                        f'{path!r}, line {reader.line_num}: expected the '
                        f'columns {columns}, but got {list(row.values())}')
                if self.split is None or row['split'] == self.split:
                    yield self._item(row, f'{path!r}, line {reader.line_num}')

    def _item(self, row: dict[str, str], where: str) -> dict:
        empty = [name for name in ('path', 'label') if not row[name].strip()]
        if empty:
            raise ValueError(f'{where}: the columns {empty} are empty')
        item: dict = dict(img_path=row['path'], name=row['label'])
        if 'super_label' in row:
            item['super_name'] = row['super_label']
        if 'is_query' in row:
            if row['is_query'] not in ('0', '1'):
                raise ValueError(f'{where}: is_query must be 0 or 1, but got '
                                 f'{row["is_query"]!r}')
            item['is_query'] = row['is_query'] == '1'
        image = osp.join(self.data_root, row['path'])
        if self.check_images and not osp.isfile(image):
            raise FileNotFoundError(
                f'{where}: there is no image {image!r}; the column path is '
                'taken below data_root')
        return item


def _utf8_lines(file: Iterable[str], path: str) -> Iterator[str]:
    """The lines of a file; one in another encoding is refused by name."""
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path!r} must be saved as UTF-8: {error}') from None
