"""Miniature trees in the exact official layouts."""

from pathlib import Path

import numpy as np
from PIL import Image


def _image(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(number).integers(
        0, 256, (48, 56, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def _cub(root: Path, per_class: int) -> None:
    images, labels = [], []
    for label in (1, 100, 101, 200):
        for number in range(per_class):
            path = f'{label:03d}.Some_Bird/Some_Bird_{number:04d}.jpg'
            images.append(f'{len(images) + 1} {path}')
            labels.append(f'{len(images)} {label}')
            _image(root / 'images' / path, len(images))
    (root / 'images.txt').write_text('\n'.join(images) + '\n')
    (root / 'image_class_labels.txt').write_text('\n'.join(labels) + '\n')


def _cars(root: Path, per_class: int) -> None:
    from scipy.io import savemat
    rows = []
    for label in (1, 98, 99, 196):
        for number in range(per_class):
            path = f'car_ims/{len(rows) + 1:06d}.jpg'
            rows.append((path, 1, 1, 30, 30, label, number % 2))
            _image(root / path, len(rows))
    names = ('relative_im_path', 'bbox_x1', 'bbox_y1', 'bbox_x2', 'bbox_y2',
             'class', 'test')
    annotations = np.empty((1, len(rows)), dtype=[(n, 'O') for n in names])
    annotations[0] = rows
    savemat(root / 'cars_annos.mat', dict(annotations=annotations))


def _sop(root: Path, per_class: int) -> None:
    image = label = 0
    for split in ('train', 'test'):
        lines = ['image_id class_id super_class_id path']
        for super_label, name in ((1, 'bicycle'), (1, 'bicycle'),
                                  (2, 'cabinet')):
            label += 1
            for number in range(per_class):
                image += 1
                path = f'{name}_final/{label:012d}_{number}.JPG'
                lines.append(f'{image} {label} {super_label} {path}')
                _image(root / path, image)
        (root / f'Ebay_{split}.txt').write_text('\n'.join(lines) + '\n')


def _inshop(root: Path, per_class: int) -> None:
    rows = []
    for number, (kind, status) in enumerate([
            ('WOMEN/Dresses', 'train'), ('MEN/Shirts', 'train'),
            ('WOMEN/Dresses', 'test'), ('MEN/Shirts', 'test')], 1):
        for view in range(per_class):
            path = f'img/{kind}/id_{number:08d}/{view:02d}_1_front.jpg'
            status_here = status if status == 'train' else (
                'query' if view == 0 else 'gallery')
            rows.append(f'{path}    id_{number:08d}    {status_here}')
            _image(root / path, len(rows))
    # an item without a query
    path = 'img/MEN/Shirts/id_00000009/01_1_front.jpg'
    rows.append(f'{path} id_00000009 gallery')
    _image(root / path, 99)
    (root / 'Eval').mkdir()
    (root / 'Eval' / 'list_eval_partition.txt').write_text(
        f'{len(rows)}\nimage_name item_id evaluation_status\n' +
        '\n'.join(rows) + '\n')


def make_tree(kind: str, root: Path, per_class: int = 2) -> str:
    """Writes the tree and returns its root."""
    root.mkdir(parents=True)
    dict(cub=_cub, cars=_cars, sop=_sop, inshop=_inshop)[kind](
        root, per_class)
    return str(root)
