"""The four benchmarks of metric learning, in their official layouts.

Training and test classes are disjoint.
"""

from __future__ import annotations

import os.path as osp
from collections.abc import Iterable

import numpy as np

from mmrank.registry import DATASETS

from .retrieval import RetrievalDataset


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
