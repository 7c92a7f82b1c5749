"""A miniature Pascal VOC tree: a few tiny images, real annotations."""

from pathlib import Path
from xml.etree import ElementTree

import cv2
import numpy as np


def write_image(folder: Path, name: str, objects: list[tuple],
                size: tuple[int, int] = (64, 48)) -> None:
    """``objects``: (class, (xmin, ymin, xmax, ymax), difficult)."""
    (folder / 'JPEGImages').mkdir(parents=True, exist_ok=True)
    (folder / 'Annotations').mkdir(exist_ok=True)
    width, height = size
    rng = np.random.default_rng(int(name))
    image = rng.integers(0, 255, (height, width, 3), dtype=np.uint8)
    root = ElementTree.Element('annotation')
    shape = ElementTree.SubElement(root, 'size')
    for tag, value in (('width', width), ('height', height), ('depth', 3)):
        ElementTree.SubElement(shape, tag).text = str(value)
    for class_name, box, difficult in objects:
        cv2.rectangle(image, box[:2], box[2:], (255, 255, 255), -1)
        node = ElementTree.SubElement(root, 'object')
        ElementTree.SubElement(node, 'name').text = class_name
        ElementTree.SubElement(node, 'difficult').text = str(int(difficult))
        bounds = ElementTree.SubElement(node, 'bndbox')
        for tag, value in zip(('xmin', 'ymin', 'xmax', 'ymax'), box):
            ElementTree.SubElement(bounds, tag).text = str(value)
    cv2.imwrite(str(folder / 'JPEGImages' / f'{name}.jpg'), image)
    ElementTree.ElementTree(root).write(
        folder / 'Annotations' / f'{name}.xml')


def write_list(folder: Path, split: str, names: list[str]) -> None:
    lists = folder / 'ImageSets' / 'Main'
    lists.mkdir(parents=True, exist_ok=True)
    (lists / f'{split}.txt').write_text('\n'.join(names) + '\n')


def make_voc_tree(root: Path) -> Path:
    """VOC2007 and VOC2012 with two images each; a box under 32 px wide."""
    for year in ('VOC2007', 'VOC2012'):
        folder = root / year
        for name in ('000001', '000002'):
            write_image(folder, name, [
                ('person', (5, 4, 30, 40), False),
                ('dog', (32, 10, 60, 44), False),
                ('car', (3, 30, 12, 46), True)])
        write_list(folder, 'trainval', ['000001', '000002'])
        write_list(folder, 'test', ['000001'])
    return root
