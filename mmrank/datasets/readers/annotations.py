"""What COCO, LVIS and VOC annotations say, and what is wrong with them.

MMDetection's data sets leave out an object whose class the config does not
list, label by the order of the file whatever the order of the config, and
fail at a damaged file without its name. Here the files are read as they are.
"""

from __future__ import annotations

import json
import os
import os.path as osp
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from json import JSONDecodeError
from typing import Any
from xml.etree import ElementTree

from mmengine.fileio import get_local_path


@dataclass
class Box:
    """An annotated object: name, corners x1, y1, x2, y2 in pixels.

    ``difficult`` is VOC's mark, or COCO's ``iscrowd``: it counts neither as
    found nor as missed. ``dropped`` says why training does not see it.
    """

    name: str
    corners: tuple[float, float, float, float]
    difficult: bool = False
    dropped: str = ''


@dataclass
class Picture:
    """An image and its objects."""

    path: str
    width: int
    height: int
    boxes: list[Box] = field(default_factory=list)


@dataclass
class Listing:
    """All that the annotations of a data set say.

    ``faults`` stop a training, ``notes`` are worth knowing; both name their
    file.
    """

    file: str
    pictures: list[Picture] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# ------------------------------------------------------------------ the names
def plain(name: str) -> str:
    """A name without case, spaces, hyphens and underscores."""
    return ''.join(c for c in name.casefold() if c not in ' -_\t')


def compare_names(file: str, classes: Sequence[str],
                  named: Mapping[str, int], declared: bool = True,
                  ) -> list[str]:
    """What is wrong between a config's class names and a file's.

    Args:
        file (str): named in the messages.
        classes (Sequence[str]): of the config's ``metainfo``.
        named (Mapping[str, int]): the names in the file, with the number of
            their objects.
        declared (bool): the file lists its classes, as COCO's does. Where it
            does not, a class without an object is no fault by itself.

    Returns:
        list[str]: one line for each fault.
    """
    twice = [name for name, count in Counter(classes).items() if count > 1]
    if twice:
        return [f'metainfo classes list {twice} more than once']
    unknown = [name for name in named if name not in set(classes)]
    lost = [name for name in classes if name not in named]
    if classes and len(lost) == len(classes):
        return [f'none of the classes {_few(classes)} in metainfo occurs in '
                f'{file}, whose names are {_few(named)}'
                + _near(lost, unknown) + '. Write the classes as the '
                'annotations do']
    by_plain = {plain(name): name for name in classes}
    faults = [
        f'{file} has {named[name]} objects called {name!r}, which metainfo '
        f'classes write {by_plain[plain(name)]!r}: they would count as '
        'background' for name in unknown if plain(name) in by_plain]
    if lost and (declared or unknown) and not faults:
        others = f', while it has {_few(sorted(unknown))}, which are not ' \
            'in metainfo classes' if unknown else ''
        faults.append(
            f'{file} has no class called {lost}{others}'
            f'{_near(lost, unknown)}. Write the classes as the annotations '
            'do')
    if not faults and not any(named.get(name) for name in classes):
        faults.append(f'{file} names the classes {_few(classes)}, but no '
                      'image has an object of any')
    return faults


def _near(lost: Iterable[str], unknown: Sequence[str]) -> str:
    by_plain = {plain(name): name for name in unknown}
    pairs = []
    for name in lost:
        near = get_close_matches(plain(name), by_plain, n=1, cutoff=.6)
        if near:
            pairs.append(f'{by_plain[near[0]]!r} for {name!r}')
    return f' (perhaps {", ".join(pairs[:5])})' if pairs else ''


def _few(names: Iterable[str], most: int = 12) -> list[str]:
    names = list(names)
    rest = [f'... {len(names) - most} more'] if len(names) > most else []
    return names[:most] + rest


# ----------------------------------------------------------------- COCO, LVIS
def read_json(file: str, backend_args: dict | None = None) -> dict[str, Any]:
    """A COCO-like file.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is damaged or no such file.
    """
    if backend_args is None and not osp.isfile(file):
        raise FileNotFoundError(f'there is no annotation file {file}')
    try:
        with get_local_path(file, backend_args=backend_args) as local, open(
                local, encoding='utf-8-sig') as stream:
            content = json.load(stream)
    except (JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f'{file} is damaged or no JSON file: {error}'
                         ) from None
    needed = ('images', 'annotations', 'categories')
    lacking = [key for key in needed if not (
        isinstance(content, dict) and isinstance(content.get(key), list))]
    if lacking:
        raise ValueError(f'{file} lacks the lists {lacking} of a COCO file')
    return content


def read_categories(file: str,
                    backend_args: dict | None = None
                    ) -> list[tuple[int, str]]:
    """The ids and names of a file's categories, in its order.

    Only they are parsed, where they can be found by their key: a second's
    work for a file of a gigabyte.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or two categories share a name.
    """
    if backend_args is None and not osp.isfile(file):
        raise FileNotFoundError(f'there is no annotation file {file}')
    with get_local_path(file, backend_args=backend_args) as local, open(
            local, encoding='utf-8-sig', errors='replace') as stream:
        text = stream.read()
    _, key, rest = text.partition('"categories"')
    rest = rest.lstrip().removeprefix(':').lstrip()
    try:
        entries = json.JSONDecoder().raw_decode(rest)[0] if key else None
        found = [(entry['id'], entry['name']) for entry in entries or ()]
    except (JSONDecodeError, KeyError, TypeError):
        entries = read_json(file, backend_args)['categories']
        found = [(entry['id'], entry['name']) for entry in entries]
    twice = [name for name, count in Counter(
        name for _, name in found).items() if count > 1]
    if twice:
        raise ValueError(f'{file} has several categories called {twice}')
    return found





def read_coco(file: str, folder: str, classes: Sequence[str],
              by_url: bool = False, backend_args: dict | None = None
              ) -> Listing:
    """The images and objects of a COCO or LVIS file.

    Args:
        file (str), backend_args (dict, optional): what is read, and how.
        folder (str): of the images.
        classes (Sequence[str]): of the config.
        by_url (bool): an image is called as at the end of its ``coco_url``,
            as LVIS v1 has it.
    """
    content = read_json(file, backend_args)
    listing = Listing(file)
    names = {c['id']: str(c['name']) for c in content['categories']}
    pictures: dict[Any, Picture] = {}
    for image in content['images']:
        path = image['coco_url'].split('.org/')[-1] if by_url \
            else image['file_name']
        pictures[image['id']] = Picture(
            osp.join(folder, path), image['width'], image['height'])
    counts = Counter(dict.fromkeys(names.values(), 0))
    strays = 0
    for entry in content['annotations']:
        picture = pictures.get(entry['image_id'])
        if picture is None or entry['category_id'] not in names:
            strays += 1
            continue
        box = _coco_box(entry, picture, names[entry['category_id']], classes)
        counts[box.name] += 1
        picture.boxes.append(box)
    listing.pictures = list(pictures.values())
    listing.faults += compare_names(file, classes, counts)
    twice = [n for n, k in Counter(names.values()).items() if k > 1]
    if twice:
        listing.faults.append(f'{file} has several categories called {twice}')
    if strays:
        listing.faults.append(
            f'{file}: {strays} annotations are of an image or a category '
            'that it does not list')
    order = [name for name in names.values() if name in classes]
    if not listing.faults and order != list(classes):
        listing.notes.append(
            f'{file} lists its categories in another order than metainfo '
            'classes; objects are labelled by name')
    return listing


def _coco_box(entry: dict, picture: Picture, name: str,
              classes: Sequence[str]) -> Box:
    x, y, w, h = entry['bbox']
    inside = (min(x + w, picture.width) - max(x, 0) > 0
              and min(y + h, picture.height) - max(y, 0) > 0)
    reasons = [
        (name not in classes, 'class not in the config'),
        (bool(entry.get('ignore')), 'marked ignore'),
        (w < 1 or h < 1 or entry.get('area', 1) <= 0, 'smaller than a pixel'),
        (not inside, 'outside the image')]
    return Box(name, (x, y, x + w, y + h), bool(entry.get('iscrowd')),
               next((why for wrong, why in reasons if wrong), ''))


# ------------------------------------------------------------------------ VOC
def read_xml(file: str) -> ElementTree.Element:
    """The root of a VOC annotation; any declared encoding.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is empty, damaged, or in an encoding that it does not
            declare.
    """
    if not osp.isfile(file):
        raise FileNotFoundError(f'there is no annotation {file}')
    with open(file, 'rb') as stream:
        content = stream.read()
    if not content.strip():
        raise ValueError(f'the annotation {file} is empty')
    try:
        return ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        hint = ''
        try:
            content.decode('utf-8')
        except UnicodeDecodeError:
            hint = ('; it is not UTF-8: save it as such, or name its encoding '
                    'in its first line, <?xml version="1.0" '
                    'encoding="ISO-8859-1"?>')
        raise ValueError(
            f'the annotation {file} is damaged: {error}{hint}') from None


def voc_images(folder: str) -> dict[str, str]:
    """Stem to file name of what lies in a folder of images."""
    if not osp.isdir(folder):
        return {}
    files = sorted(name for name in os.listdir(folder)
                   if not name.startswith('.'))
    return {osp.splitext(name)[0]: name for name in files}


def read_voc(file: str, root: str, classes: Sequence[str], *,
             img_subdir: str = 'JPEGImages', ann_subdir: str = 'Annotations',
             smallest: int = 0) -> Listing:
    """The images and objects of a list of VOC annotations.

    Args:
        file (str): one image name a line, such as ``trainval.txt``.
        root (str): the folder of ``img_subdir`` and ``ann_subdir``.
        classes (Sequence[str]): of the config.
        smallest (int): ``bbox_min_size`` of the config's ``filter_cfg``:
            smaller boxes are ignored.
    """
    if not osp.isfile(file):
        raise FileNotFoundError(f'there is no list of images {file}')
    listing = Listing(file)
    with open(file, encoding='utf-8-sig') as stream:
        names = [line.strip() for line in stream if line.strip()]
    files = voc_images(osp.join(root, img_subdir))
    others: Counter[str] = Counter()
    for name in names:
        wanted = osp.join(root, img_subdir, f'{name}.jpg')
        found = files.get(name, f'{name}.jpg')
        if osp.isfile(wanted):
            found = f'{name}.jpg'
        elif name in files:
            others[osp.splitext(found)[1]] += 1
        try:
            picture = _voc_picture(
                osp.join(root, img_subdir, found),
                osp.join(root, ann_subdir, f'{name}.xml'), classes, smallest)
        except (FileNotFoundError, ValueError) as error:
            listing.faults.append(str(error))
            continue
        listing.pictures.append(picture)
    counts = Counter(box.name for picture in listing.pictures
                     for box in picture.boxes)
    listing.faults += compare_names(file, classes, counts, declared=False)
    if others:
        listing.notes.append(
            f'{file}: {sum(others.values())} images in '
            f'{osp.join(root, img_subdir)} end in {sorted(others)} and not '
            'in .jpg; they are found by their stem')
    return listing


def _voc_picture(image: str, annotation: str, classes: Sequence[str],
                 smallest: int) -> Picture:
    root = read_xml(annotation)
    size = root.find('size')
    try:
        width, height = (int(size.findtext(side, '0')) if size is not None
                         else 0 for side in ('width', 'height'))
        boxes = [_voc_box(node, classes, smallest)
                 for node in root.iterfind('object')]
    except (TypeError, ValueError) as error:
        raise ValueError(f'the annotation {annotation} has an object without '
                         f'name or bndbox, or no numbers in it: {error}'
                         ) from None
    return Picture(image, width, height, boxes)


def _voc_box(node: ElementTree.Element, classes: Sequence[str],
             smallest: int) -> Box:
    name, bounds = node.findtext('name'), node.find('bndbox')
    if name is None or bounds is None:
        raise ValueError('an object lacks its name or its bndbox')
    x1, y1, x2, y2 = (float(bounds.findtext(side) or 'none') for side in (
        'xmin', 'ymin', 'xmax', 'ymax'))
    why = ''
    if name not in classes:
        why = 'class not in the config'
    elif x2 <= x1 or y2 <= y1:
        why = 'no area'
    elif min(x2 - x1, y2 - y1) < smallest:
        why = f'smaller than bbox_min_size={smallest} (ignored)'
    return Box(name, (x1, y1, x2, y2),
               node.findtext('difficult', '0').strip() == '1', why)
