"""Whether the data of a config is what the config says, before a training."""

from __future__ import annotations

import os
import os.path as osp
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from mmengine.config import Config
from mmengine.registry import DATASETS, DefaultScope

from ..datasets.readers.annotations import Listing, read_coco, read_voc
from ..visualization.sample_sheet import Sample

# what a data set is asked for without its images
QUIET = dict(pipeline=[], lazy_init=True)


@dataclass
class SetReport:
    """What one data set of a config holds.

    ``rows`` is the table of classes: name, images, boxes, the median width
    and height of a box, difficult ones.
    """

    part: str
    name: str
    images: int = 0
    facts: list[str] = field(default_factory=list)
    rows: list[tuple[str, int, int, str, int]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f'{self.part}: {self.name}, {self.images} images'
                 f', {len(self.rows)} classes']
        lines += [f'  {fact}' for fact in self.facts]
        if self.rows:
            lines += _table(self.rows)
        lines += [f'  note: {note}' for note in self.notes]
        lines += [f'  FAULT: {fault}' for fault in self.faults]
        return '\n'.join(lines)


def check_data(cfg: Config | str, samples: int = 12,
               seed: int = 0) -> list[SetReport]:
    """Reads every data set of a config as it is, without training.

    Annotations are read from their files, not through MMDetection's data
    sets, which drop what they do not know and fail without naming a file.

    Args:
        cfg (Config | str): with ``train_dataloader``, ``val_dataloader``,
            ``test_dataloader``, as far as there are any; or its file.
        samples (int): images of each data set that are kept for drawing,
            chosen at random.
        seed (int): of that choice.

    Returns:
        list[SetReport]: one a data set, those inside wrappers each. Data
        sets that two loaders share are read once. ``faults`` are empty
        where a training would see what the files say.
    """
    cfg = Config.fromfile(cfg) if isinstance(cfg, (str, os.PathLike)) else cfg
    reports: list[SetReport] = []
    # the caller's own scope is there again afterwards
    with DefaultScope.overwrite_default_scope(
            cfg.get('default_scope') or 'mmengine'):
        for leaf, parts in _data_sets(cfg):
            report = SetReport(', '.join(parts), str(leaf.get('type')))
            try:
                _read(leaf, report, samples, np.random.default_rng(seed))
            except (OSError, ValueError, KeyError, TypeError) as error:
                report.faults.append(
                    str(error) if isinstance(error, (OSError, ValueError))
                    else f'{type(error).__name__}: {error}')
            reports.append(report)
    return reports


def _data_sets(cfg: Config) -> list[tuple[dict, list[str]]]:
    """Each data set once, with the loaders that read it."""
    found: dict[str, tuple[dict, list[str]]] = {}
    for part in ('train', 'val', 'test'):
        loader = cfg.get(f'{part}_dataloader') or {}
        for leaf in _leaves(loader.get('dataset')):
            found.setdefault(repr(leaf), (leaf, []))[1].append(part)
    return list(found.values())


@contextmanager
def naming_faults(cfg: Config) -> Iterator[None]:
    """Where a run fails over its data, says what is wrong with them.

    An error that an annotation may have caused, such as MMDetection's "need
    at least one array", becomes a ValueError that lists the faults of the
    data, if there are any; otherwise it passes as it is.
    """
    try:
        yield
    except (OSError, ValueError, LookupError, AttributeError, SyntaxError,
            AssertionError, TypeError) as error:
        try:
            faults = [fault for report in check_data(cfg, samples=0)
                      for fault in report.faults]
        except Exception:  # the first error is the one to see
            faults = []
        if not faults or any(fault in str(error) for fault in faults):
            raise
        raise ValueError(
            'the data do not fit the config:\n' + '\n'.join(faults)
            + f'\n(found after {type(error).__name__}: {error})') from error


def _leaves(cfg: Any) -> Iterator[dict]:
    """The data sets inside wrappers of a config."""
    if not isinstance(cfg, dict):
        return
    if isinstance(cfg.get('dataset'), dict):
        yield from _leaves(cfg['dataset'])
    elif isinstance(cfg.get('datasets'), (list, tuple)):
        for inner in cfg['datasets']:
            yield from _leaves(inner)
    else:
        yield cfg


def _read(leaf: dict, report: SetReport, samples: int,
          rng: np.random.Generator) -> None:
    with DATASETS.switch_scope_and_registry(None) as registry:
        kind = registry.get(leaf['type']) if isinstance(
            leaf['type'], str) else leaf['type']
    if kind is None:
        raise ValueError(f'there is no data set {leaf["type"]!r}')
    bases = {base.__name__ for base in kind.__mro__}
    if bases & {'CocoDataset', 'XMLDataset'}:
        dataset = DATASETS.build({**leaf, **QUIET})
        listing = _listing(dataset, bases)
        _describe(listing, dataset, report)
        _choose(listing, report, samples, rng)
        return
    options: dict = dict(pipeline=[]) if 'BaseDataset' in bases else {}
    _describe_other(DATASETS.build({**leaf, **options}), report, samples, rng)


# ------------------------------------------------------------------ detection
def _listing(dataset: Any, bases: set[str]) -> Listing:
    classes = tuple(dataset.metainfo.get('classes') or ())
    if 'XMLDataset' in bases:
        return read_voc(
            dataset.ann_file, dataset.sub_data_root, classes,
            img_subdir=dataset.img_subdir, ann_subdir=dataset.ann_subdir,
            smallest=dataset.bbox_min_size or 0)
    return read_coco(dataset.ann_file, dataset.data_prefix.get('img', ''),
                     classes, 'LVISV1Dataset' in bases, dataset.backend_args)


def _describe(listing: Listing, dataset: Any, report: SetReport) -> None:
    report.name += f' of {listing.file}'
    report.images = len(listing.pictures)
    report.faults += listing.faults
    report.notes += listing.notes
    missing = [p.path for p in listing.pictures if not osp.isfile(p.path)]
    if missing:
        report.faults.append(f'{len(missing)} images are missing, the first '
                             f'{missing[0]}')
    boxes = [box for p in listing.pictures for box in p.boxes]
    dropped = Counter(box.dropped for box in boxes if box.dropped)
    empty = sum(not any(not b.dropped for b in p.boxes)
                for p in listing.pictures)
    settings = dataset.filter_cfg or {}
    out = 'left out of training' if settings.get('filter_empty_gt') \
        and not dataset.test_mode else 'kept'
    small = sum(min(p.width, p.height) < settings.get('min_size', 0)
                for p in listing.pictures)
    report.facts += [
        f'boxes: {len(boxes)}, difficult or crowd: '
        f'{sum(box.difficult for box in boxes)}',
        f'image sizes: {_spread(listing)}',
        f'images without a box that counts: {empty} ({out})',
        f'images smaller than min_size: {small}']
    report.facts += [f'boxes dropped: {count}, {why}'
                     for why, count in dropped.most_common()]
    others = Counter(b.name for b in boxes
                     if b.dropped == 'class not in the config')
    if others:
        report.notes.append('names that the config does not list: '
                            + ', '.join(f'{name} ({count})' for name, count
                                        in others.most_common(20)))
    classes = list(dataset.metainfo.get('classes') or ())
    report.rows = [_class_row(name, listing) for name in classes]


def _spread(listing: Listing) -> str:
    sizes = np.array([(p.width, p.height) for p in listing.pictures])
    if not len(sizes):
        return 'none'
    low, middle, high = sizes.min(0), np.median(sizes, 0), sizes.max(0)
    return ', '.join(f'{word} {int(w)}x{int(h)}' for word, (w, h) in zip(
        ('least', 'median', 'most'), (low, middle, high)))


def _class_row(name: str,
               listing: Listing) -> tuple[str, int, int, str, int]:
    of_class = [[b for b in p.boxes if b.name == name]
                for p in listing.pictures]
    boxes = [box for inside in of_class for box in inside]
    if not boxes:
        return name, 0, 0, '-', 0
    corners = np.array([box.corners for box in boxes])
    w, h = np.median(corners[:, 2:] - corners[:, :2], 0)
    return (name, sum(map(bool, of_class)), len(boxes), f'{w:.0f}x{h:.0f}',
            sum(box.difficult for box in boxes))


def _choose(listing: Listing, report: SetReport, samples: int,
            rng: np.random.Generator) -> None:
    there = [p for p in listing.pictures if p.boxes and osp.isfile(p.path)]
    for index in rng.permutation(len(there))[:samples]:
        picture = there[index]
        report.samples.append(Sample(
            picture.path, osp.basename(picture.path), picture.boxes))


# ------------------------------------------------------ retrieval and patches
def _describe_other(dataset: Any, report: SetReport, samples: int,
                    rng: np.random.Generator) -> None:
    report.images = len(dataset)
    if hasattr(dataset, 'get_labels'):
        _describe_labels(dataset, report)
    chosen = rng.permutation(len(dataset))[:samples]
    report.samples = [_sample(dataset, int(index)) for index in chosen]


def _describe_labels(dataset: Any, report: SetReport) -> None:
    labels = dataset.get_labels()
    names = [str(n) for n in dataset.metainfo.get('classes') or
             range(int(labels.max(initial=-1)) + 1)]
    counts = np.bincount(labels, minlength=len(names))
    report.rows = [(name, int(count), 0, '-', 0)
                   for name, count in zip(names, counts)]
    single = int((counts == 1).sum())
    report.facts.append(f'images a class: {counts.min(initial=0)} to '
                        f'{counts.max(initial=0)}; classes of one image: '
                        f'{single}')
    if len(counts) and counts.max() < 2:
        report.faults.append('every class has one image: nothing can be '
                             'compared or found')
    paths = [dataset.get_data_info(i).get('img_path')
             for i in range(len(dataset))]
    missing = [path for path in paths if path and not osp.isfile(path)]
    if missing:
        report.faults.append(f'{len(missing)} images are missing, the first '
                             f'{missing[0]}')
    by_plain: dict[str, list[str]] = {}
    for name in names:
        by_plain.setdefault(name.strip().casefold(), []).append(name)
    for alike in by_plain.values():
        if len(alike) > 1:
            report.faults.append(f'the classes {alike} differ in case or '
                                 'spaces only')


def _sample(dataset: Any, index: int) -> Sample:
    if hasattr(dataset, 'get_data_info'):
        info = dataset.get_data_info(index)
        names = dataset.metainfo.get('classes')
        label = info['gt_label']
        title = str(names[label] if names else label)
        return Sample(info.get('img_path', info.get('img')), title)
    item = dataset[index]
    facts = item['data_samples']
    title = ', '.join(f'{key}={facts[key]}' for key in (
        'class_id', 'match', 'sequence', 'strip') if key in facts)
    # the patches of a class or a pair beside each other
    patches = item['inputs'][:4, 0].numpy()
    return Sample(np.concatenate(list(patches), 1), title)


# ------------------------------------------------------------------- printing
def _table(rows: Sequence[tuple], most: int = 40) -> list[str]:
    heading = ('class', 'images', 'boxes', 'size', 'difficult')
    shown = sorted(rows, key=lambda row: row[1:3])[:most]
    cells = [heading, *(tuple(map(str, row)) for row in shown)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ['  ' + '  '.join(
        cell.ljust(width) if not place else cell.rjust(width)
        for place, (cell, width) in enumerate(zip(row, widths)))
        for row in cells]
    if len(rows) > most:
        lines.append(f'  ... {len(rows) - most} classes of more images')
    return lines
