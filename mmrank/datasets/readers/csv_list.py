"""Images listed in a CSV file."""

from __future__ import annotations

import csv
import hashlib
import os
import os.path as osp
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from mmengine.logging import MMLogger

from mmrank.registry import DATASETS

from .retrieval import RetrievalDataset


@DATASETS.register_module()
class CSVRetrievalDataset(RetrievalDataset):
    """Items listed in a CSV file with a heading.

    Columns: ``path`` (below ``data_root``) and ``label``; optional
    ``super_label``, ``split`` and ``is_query`` (0 or 1). Labels may be any
    text; spaces around a cell do not count.

    Refused, with both rows named: labels that differ in case only, an image
    under two labels, an image that is query and in the gallery. Two rows
    name one image if their files are the same, links followed, or hold the
    same bytes; only files of equal size are read for that.

    Args:
        csv_file (str): the list, below ``data_root``.
        split (str, optional): keep the rows of this ``split``; None keeps
            all.
        check_images (bool): refuse a row whose image does not exist. It
            takes microseconds a row on a local disk; False leaves it to the
            reading, for long lists on a slow file system; rows then name
            one image if their paths are equal.
        labels_by_case (bool): True makes labels that differ in case
            classes of their own.
        allow_query_in_gallery (bool): True accepts an image that is query
            and in the gallery, counts them in the log, and marks the items
            by a ``file_id``: :class:`mmrank.RetrievalMetric` then makes no
            image a neighbour of itself.
        kwargs: of :class:`RetrievalDataset`.
    """

    layout = ('data_root/list.csv with the columns path,label and optionally '
              'super_label,split,is_query')

    def __init__(self,
                 data_root: str = '',
                 csv_file: str = 'list.csv',
                 split: str | None = None,
                 check_images: bool = True,
                 labels_by_case: bool = False,
                 allow_query_in_gallery: bool = False,
                 **kwargs: Any) -> None:
        self.needed = (csv_file, )
        self.check_images = check_images
        self.labels_by_case = labels_by_case
        self.allow_query_in_gallery = allow_query_in_gallery
        self.splits = (split, )  # type: ignore[assignment]
        super().__init__(
            data_root, split, **kwargs)  # type: ignore[arg-type]

    def load_items(self) -> Iterable[dict]:
        lines, items = [], []
        for line, row in self._read():
            where = f'{self._list!r}, line {line}'
            lines.append(line)
            items.append(self._item(row, where))
        if not self.labels_by_case:
            self._check_case(lines, items)
        self._check_files(lines, items)
        return items

    @property
    def _list(self) -> str:
        return osp.join(self.data_root, self.needed[0])

    def _read(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The number of each line of this split, and its cells."""
        path = self._list
        with open(path, newline='', encoding='utf-8-sig') as file:
            reader = csv.DictReader(_utf8_lines(file, path))
            columns = [name.strip() for name in reader.fieldnames or ()]
            reader.fieldnames = columns
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
                cells = {name: cell.strip() for name, cell in row.items()}
                if self.split is None or cells['split'] == self.split:
                    yield reader.line_num, cells

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

    def _check_case(self, lines: list[int], items: list[dict]) -> None:
        first: dict[str, tuple[str, int]] = {}
        for line, item in zip(lines, items):
            name = item['name']
            other, at = first.setdefault(name.casefold(), (name, line))
            if other != name:
                raise ValueError(
                    f'{self._list!r}: the labels {other!r} of line {at} and '
                    f'{name!r} of line {line} differ in case only; write '
                    'them alike, or set labels_by_case=True')

    def _check_files(self, lines: list[int], items: list[dict]) -> None:
        paths = [osp.join(self.data_root, item['img_path'])
                 for item in items]
        found = file_ids(paths) if self.check_images else _numbers(
            map(osp.normpath, paths))
        of_file: dict[int, list[int]] = {}
        for place, number in enumerate(found):
            of_file.setdefault(number, []).append(place)
        both = 0
        for places in of_file.values():
            for a, b in ((places[0], other) for other in places[1:]):
                self._check_labels(lines, items, a, b)
            roles = {items[p].get('is_query'): p for p in places}
            if {True, False} <= roles.keys():
                both += 1
                self._check_roles(lines, items, *sorted(roles.values())[:2])
        if both:
            MMLogger.get_current_instance().info(
                f'{self._list!r}: {both} images are queries and in the '
                'gallery; none is a neighbour of itself')
            for item, number in zip(items, found):
                item['file_id'] = number

    def _check_labels(self, lines: list[int], items: list[dict], a: int,
                      b: int) -> None:
        if items[a]['name'] != items[b]['name']:
            raise ValueError(
                f'{self._list!r}: one image has two labels: '
                f'{_row(lines, items, a)} and {_row(lines, items, b)}; keep '
                'the row that is right')

    def _check_roles(self, lines: list[int], items: list[dict], a: int,
                     b: int) -> None:
        if not self.allow_query_in_gallery:
            raise ValueError(
                f'{self._list!r}: one image is query and in the gallery, '
                f'where it would find itself: {_row(lines, items, a)} and '
                f'{_row(lines, items, b)}; remove a row, or set '
                'allow_query_in_gallery=True')


def file_ids(paths: Sequence[str]) -> list[int]:
    """A number for each path, equal where they hold the same bytes.

    Links are followed. Only files that share their size with another are
    read; empty ones, which are no images, are not compared.
    """
    real = [osp.realpath(path) for path in paths]
    of_size: dict[int, set[str]] = {}
    for path in set(real):
        of_size.setdefault(os.stat(path).st_size, set()).add(path)
    content: dict[str, str] = {}
    of_size.pop(0, None)
    for alike in of_size.values():
        for path in alike if len(alike) > 1 else ():
            with open(path, 'rb') as file:
                content[path] = hashlib.sha256(file.read()).hexdigest()
    return _numbers(content.get(path, path) for path in real)


def _numbers(keys: Iterable[str]) -> list[int]:
    first: dict[str, int] = {}
    return [first.setdefault(key, len(first)) for key in keys]


def _row(lines: list[int], items: list[dict], place: int) -> str:
    item = items[place]
    return (f'line {lines[place]} ({item["img_path"]}, label '
            f'{item["name"]!r})')


def _utf8_lines(file: Iterable[str], path: str) -> Iterator[str]:
    """The lines of a file; one in another encoding is refused by name."""
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path!r} must be saved as UTF-8: {error}') from None
