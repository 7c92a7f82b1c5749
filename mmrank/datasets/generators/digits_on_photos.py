"""DigitsOnPhotos: a small detection data set that needs no download.

Two real sources that arrive by pip are put together: scikit-learn's 1,797
scans of handwritten digits (the objects) and the photographs inside the
scikit-image wheel (the backgrounds). The result lies on disk in the layout
of Pascal VOC 2007, so that MMDetection's own ``VOCDataset`` reads it.

A scan or a photograph used in one split never appears in another one.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from mmrank.files import whole_folder
from mmrank.optional import need

from .digit_painter import (
    CLASSES,
    SPLITS,
    Digit,
    DigitPainter,
    DigitsOnPhotosOptions,
)

__all__ = ['CLASSES', 'SPLITS', 'DigitsOnPhotosOptions',
           'make_digits_on_photos']

# raised whenever the pixels change, so that an old folder is not reused
VERSION = 2
_RECORD = 'digits_on_photos.json'


def _annotation(name: str, size: int,
                digits: Sequence[Digit]) -> ElementTree.ElementTree:
    """A VOC annotation; its pixels are counted from 1, both ends inside."""
    root = ElementTree.Element('annotation')

    def add(parent: ElementTree.Element, tag: str,
            text: Any = None) -> ElementTree.Element:
        child = ElementTree.SubElement(parent, tag)
        child.text = None if text is None else str(text)
        return child

    add(root, 'folder', 'VOC2007')
    add(root, 'filename', f'{name}.jpg')
    add(add(root, 'source'), 'database', 'DigitsOnPhotos')
    shape = add(root, 'size')
    for tag, value in (('width', size), ('height', size), ('depth', 3)):
        add(shape, tag, value)
    add(root, 'segmented', 0)
    for digit in digits:
        node = add(root, 'object')
        add(node, 'name', CLASSES[digit.label])
        add(node, 'pose', 'Unspecified')
        add(node, 'truncated', int(digit.truncated))
        add(node, 'difficult', int(digit.difficult))
        box = add(node, 'bndbox')
        x1, y1, x2, y2 = digit.box
        for tag, value in (('xmin', x1 + 1), ('ymin', y1 + 1), ('xmax', x2),
                           ('ymax', y2)):
            add(box, tag, value)
    tree = ElementTree.ElementTree(root)
    ElementTree.indent(tree)
    return tree


def _write_split(options: DigitsOnPhotosOptions, split: str, root: Path,
                 first: int) -> dict[str, set[int]]:
    """Writes the images of a split; returns name -> classes on the image."""
    import cv2
    painter = DigitPainter(options, split)
    contents: dict[str, set[int]] = {}
    for index in range(options.images(split)):
        name = f'{first + index:06d}'
        image, digits = painter.paint(index)
        cv2.imwrite(str(root / 'JPEGImages' / f'{name}.jpg'), image,
                    [cv2.IMWRITE_JPEG_QUALITY, 95])
        _annotation(name, options.image_size, digits).write(
            root / 'Annotations' / f'{name}.xml', encoding='utf-8')
        contents[name] = {d.label for d in digits if not d.difficult}
    return contents


def _write_lists(root: Path, split: str,
                 contents: dict[str, set[int]]) -> None:
    """``<split>.txt`` and VOC's lists of the images that show a class."""
    folder = root / 'ImageSets' / 'Main'
    (folder / f'{split}.txt').write_text(
        ''.join(f'{name}\n' for name in contents))
    for label, class_name in enumerate(CLASSES):
        (folder / f'{class_name}_{split}.txt').write_text(''.join(
            f'{name} {1 if label in labels else -1:2d}\n'
            for name, labels in contents.items()))


def make_digits_on_photos(
        out_dir: str | os.PathLike[str],
        options: DigitsOnPhotosOptions | None = None) -> Path:
    """Writes DigitsOnPhotos in the layout of Pascal VOC 2007.

    The ten classes are the digits ``zero`` to ``nine``. Digits come in
    several sizes, colours, contrasts and angles; some are partly hidden,
    and those that are hidden by more than 40 % of their ink or are hardly
    lighter or darker than their ground are marked ``difficult``. Letters,
    signs and pieces of other photographs are background.

    The folder appears under its name only when it is complete. A folder
    made with the same options is kept as it is.

    Args:
        out_dir (str | PathLike): The folder that gets ``VOC2007/``.
        options (DigitsOnPhotosOptions, optional): Sizes and seed.

    Returns:
        Path: ``out_dir``, with ``VOC2007/JPEGImages``,
        ``VOC2007/Annotations`` and ``VOC2007/ImageSets/Main`` (``train``,
        ``val``, ``trainval``, ``test``) in it.

    Raises:
        FileExistsError: ``out_dir`` holds something else, or a set made
            with other options.
        ModuleNotFoundError: scikit-learn, scikit-image or matplotlib is
            missing.

    Examples:
        >>> import tempfile
        >>> options = DigitsOnPhotosOptions(
        ...     num_train=2, num_val=1, num_test=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     root = make_digits_on_photos(folder + '/digits', options)
        ...     main = root / 'VOC2007' / 'ImageSets' / 'Main'
        ...     (main / 'train.txt').read_text().split()
        ['000001', '000002']
    """
    options = options or DigitsOnPhotosOptions()
    target = Path(out_dir)
    record = {'version': VERSION, **asdict(options)}
    record['digit_sizes'] = list(options.digit_sizes)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        _require_same(target, record)
        return target
    _require_sources()
    with whole_folder(target) as work:
        root = work / 'VOC2007'
        for part in ('JPEGImages', 'Annotations', 'ImageSets/Main'):
            (root / part).mkdir(parents=True)
        first, lists = 1, {}
        for split in SPLITS:
            lists[split] = _write_split(options, split, root, first)
            first += options.images(split)
        lists['trainval'] = {**lists['train'], **lists['val']}
        for split, contents in lists.items():
            _write_lists(root, split, contents)
        (work / _RECORD).write_text(json.dumps(record, indent=2) + '\n')
    return target


def _require_same(target: Path, record: dict[str, Any]) -> None:
    path = target / _RECORD
    if not path.is_file():
        raise FileExistsError(
            f'{target} exists and is not a DigitsOnPhotos folder ({_RECORD} '
            'is missing): choose another folder or remove it')
    found = json.loads(path.read_text())
    if found != record:
        other = {k: (found.get(k), v) for k, v in record.items()
                 if found.get(k) != v}
        raise FileExistsError(
            f'{target} was made with other options (there, asked for): '
            f'{other}. Remove the folder or choose another one')


def _require_sources() -> None:
    for module, install in (
            ('sklearn', 'scikit-learn'), ('skimage', 'scikit-image'),
            ('matplotlib', 'matplotlib'), ('cv2', 'opencv-python')):
        need(module, 'DigitsOnPhotos', install)
