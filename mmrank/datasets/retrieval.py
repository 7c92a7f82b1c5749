"""The four benchmarks of metric learning, in their official layouts.

Every item of a data set has ``img_path``, ``gt_label`` (contiguous from 0
within the split), ``sample_idx`` and, where the benchmark has them,
``super_label`` and ``is_query``. Training and test classes are disjoint.
"""

from __future__ import annotations

import csv
import os
import os.path as osp
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from mmengine.dataset import BaseDataset

from mmrank.registry import DATASETS


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


@DATASETS.register_module()
class CUBDataset(RetrievalDataset):
    """CUB-200-2011: the first 100 classes train, the last 100 test.

    This is the retrieval split, not the classification split of the archive.
    """

    layout = ('data_root/  (CUB_200_2011, from the archive)\n'
              '  images.txt  image_class_labels.txt\n'
              '  images/001.Black_footed_Albatross/*.jpg ...')
    needed = ('images.txt', 'image_class_labels.txt', 'images')
    published = {'train': (5864, 100), 'test': (5924, 100)}

    def load_items(self) -> Iterable[dict]:
        paths = dict(self._rows('images.txt', int, str))
        labels = 'image_class_labels.txt'
        for image, label in self._rows(labels, int, int):
            if image not in paths:
                raise ValueError(f'{self.data_root}/{labels} has a label of '
                                 f'image {image}, but images.txt no path')
            if (label <= 100) == (self.split == 'train'):
                path = paths[image]
                yield dict(img_path=f'images/{path}', name=osp.dirname(path))


@DATASETS.register_module()
class CarsDataset(RetrievalDataset):
    """Cars-196: the first 98 classes train, the last 98 test.

    This is the retrieval split, not the classification split of the devkit.
    Reading the annotations needs scipy.
    """

    layout = ('data_root/\n'
              '  cars_annos.mat  (of all 16,185 images)\n'
              '  car_ims/000001.jpg ...')
    needed = ('cars_annos.mat', 'car_ims')
    published = {'train': (8054, 98), 'test': (8131, 98)}

    def load_items(self) -> Iterable[dict]:
        from scipy.io import loadmat
        path = osp.join(self.data_root, 'cars_annos.mat')
        try:
            content = loadmat(path, squeeze_me=True)
        except Exception as error:  # scipy's readers raise all kinds
            raise ValueError(
                f'{path!r} is no MATLAB file: {error}') from error
        if 'annotations' not in content:
            raise ValueError(f'{path!r} holds no field "annotations"; take '
                             'the cars_annos.mat of all 16,185 images')
        for row in np.atleast_1d(content['annotations']):
            label = int(row['class'])
            if (label <= 98) == (self.split == 'train'):
                # zero-padded, so that the names sort as the numbers do
                yield dict(
                    img_path=str(row['relative_im_path']), name=f'{label:03d}')


@DATASETS.register_module()
class StanfordOnlineProductsDataset(RetrievalDataset):
    """Stanford Online Products, with its 12 super-labels."""

    layout = ('data_root/  (Stanford_Online_Products, from the archive)\n'
              '  Ebay_train.txt  Ebay_test.txt\n'
              '  bicycle_final/*.JPG  cabinet_final/*.JPG ...')
    needed = ('Ebay_train.txt', 'Ebay_test.txt')
    published = {'train': (59551, 11318), 'test': (60502, 11316)}

    def load_items(self) -> Iterable[dict]:
        name = f'Ebay_{self.split}.txt'
        with open(osp.join(self.data_root, name), encoding='utf-8') as file:
            heading = file.readline().split()
        if heading[:2] != ['image_id', 'class_id']:
            raise ValueError(f'{self.data_root}/{name} must begin with the '
                             'line "image_id class_id super_class_id path"')
        for _, label, super_label, path in self._rows(
                name, int, int, int, str, skip=1):
            yield dict(
                img_path=path,
                name=f'{label:05d}',
                super_name=f'{super_label:02d}')


@DATASETS.register_module()
class InShopDataset(RetrievalDataset):
    """DeepFashion In-Shop Clothes: training items, queries, a gallery.

    The split ``test`` is ``query`` and ``gallery`` together, the queries
    marked by ``is_query``: what :class:`mmrank.RetrievalMetric` evaluates.
    The super-label is gender and kind of clothing, e.g. ``WOMEN/Dresses``.
    """

    splits = ('train', 'query', 'gallery', 'test')
    layout = ('data_root/  (In-shop Clothes Retrieval Benchmark)\n'
              '  Eval/list_eval_partition.txt\n'
              '  img/WOMEN/Dresses/id_00000002/02_1_front.jpg ...')
    needed = ('Eval/list_eval_partition.txt', 'img')
    published = {'train': (25882, 3997), 'query': (14218, 3985),
                 'gallery': (12612, 3985), 'test': (26830, 3985)}

    def load_items(self) -> Iterable[dict]:
        wanted = ('query', 'gallery') if self.split == 'test' else \
            (self.split, )
        # the first two lines are the number of items and the heading
        for path, name, status in self._rows(
                'Eval/list_eval_partition.txt', str, str, str, skip=2):
            if status in wanted:
                yield dict(
                    img_path=path,
                    name=name,
                    super_name='/'.join(path.split('/')[1:3]),
                    is_query=status == 'query')


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


def _utf8_lines(file: Iterable[str], path: str) -> Iterator[str]:
    """The lines of a file; one in another encoding is refused by name."""
    try:
        yield from file
    except UnicodeDecodeError as error:
        raise ValueError(
            f'{path!r} must be saved as UTF-8: {error}') from None


def _number(items: list[dict], name: str, label: str) -> tuple[str, ...]:
    """Replace every name by its place among the sorted names."""
    names = sorted({item[name] for item in items})
    numbers = {text: number for number, text in enumerate(names)}
    for item in items:
        item[label] = numbers[item.pop(name)]
    return tuple(names)
