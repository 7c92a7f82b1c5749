"""A miniature COCO tree: a few tiny images, real annotations."""

import json
from collections.abc import Iterable
from pathlib import Path

import cv2
import numpy as np


def make_coco_tree(root: Path, categories: Iterable[tuple[int, str]]) -> Path:
    """Four images, each with two objects; categories are (id, name)."""
    rng = np.random.default_rng(0)
    categories = list(categories)
    images, annotations = [], []
    for folder in ('train2017', 'val2017', 'annotations'):
        (root / folder).mkdir(parents=True)
    for index in range(4):
        image = rng.integers(0, 255, (48, 64, 3), dtype=np.uint8)
        for folder in ('train2017', 'val2017'):
            cv2.imwrite(str(root / folder / f'{index}.jpg'), image)
        images.append(dict(
            id=index, file_name=f'{index}.jpg', width=64, height=48))
        for box, category in (((4, 4, 24, 36), 0), ((34, 8, 28, 32), 1)):
            annotations.append(dict(
                id=len(annotations) + 1, image_id=index, bbox=box,
                area=box[2] * box[3], iscrowd=0,
                category_id=categories[category][0]))
    content = json.dumps(dict(
        images=images, annotations=annotations,
        categories=[dict(id=i, name=n) for i, n in categories]))
    for part in ('train', 'val'):
        (root / 'annotations' / f'instances_{part}2017.json').write_text(
            content)
    return root


def add_lvis(root: Path, categories: Iterable[tuple[int, str]]) -> None:
    """LVIS's files of annotations beside COCO's, of the same images."""
    content = json.loads(
        (root / 'annotations/instances_train2017.json').read_text())
    for image in content['images']:
        # mmdet takes the part behind the host as the file's path
        url = f'http://images.cocodataset.org/train2017/{image["file_name"]}'
        image.update(coco_url=url, neg_category_ids=[],
                     not_exhaustive_category_ids=[])
    content['categories'] = [
        dict(id=i, name=n, image_count=1) for i, n in categories]
    for part in ('train', 'val'):
        (root / 'annotations' / f'lvis_v1_{part}.json').write_text(
            json.dumps(content))
