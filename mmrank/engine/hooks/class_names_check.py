"""Stops a run whose class names are not those of the annotations."""

from __future__ import annotations

import os.path as osp
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from mmengine.fileio import list_from_file
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...datasets.readers.annotations import (
    compare_names,
    read_categories,
    read_xml,
    voc_images,
)
from ...datasets.samplers.class_index import unsliced
from ...registry import HOOKS


@HOOKS.register_module()
class ClassNamesCheckHook(Hook):
    """Compares the class names of the config with those of the annotations.

    MMDetection's data sets leave out the objects of a class that the
    config's ``metainfo`` does not list, without a word: a typo, or another
    case, costs a class. This hook raises instead, before the first
    iteration, for training and validation sets. A class without an object
    is fine as long as the annotations name no class that is not listed
    either.

    Two things it mends, since what is meant is plain. COCO's and LVIS's data
    sets label objects in the order of the file, their names are in the order
    of the config: the hook makes label ``i`` the class ``classes[i]``, in
    the data sets and in the metrics that compare with a file. VOC's look
    for ``.jpg`` only: the hook takes the image of the same stem that is
    there.

    It knows COCO-like data sets (``cat_ids``) and XML ones
    (``ann_subdir``), inside any wrappers, and passes over others.
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Runner) -> None:
        """Checks the training set, and the validation set with it.

        Raises:
            ValueError: a class is misspelt, or an annotation damaged.
        """
        _check(runner.train_dataloader.dataset, training=True)
        if getattr(runner, 'val_loop', None) is not None:
            self.before_val(runner)

    def before_val(self, runner: Runner) -> None:
        """Checks the validation set and its metrics."""
        _check_loop(runner.val_loop)

    def before_test(self, runner: Runner) -> None:
        """Checks the test set and its metrics."""
        _check_loop(runner.test_loop)


def _check_loop(loop: Any) -> None:
    _check(loop.dataloader.dataset, training=False)
    for metric in loop.evaluator.metrics:
        classes = (metric.dataset_meta or {}).get('classes')
        api = getattr(metric, '_coco_api', None) or getattr(
            metric, '_lvis_api', None)
        if classes and api is not None:
            _align_metric(metric, api, tuple(classes))


def _check(dataset: Any, training: bool) -> None:
    for part in _unwrap(dataset):
        classes = getattr(part, 'metainfo', {}).get('classes')
        if not classes:
            continue
        if hasattr(part, 'cat_ids'):
            _check_coco(part, tuple(classes), training)
        elif hasattr(part, 'ann_subdir'):
            _check_xml(part, tuple(classes), training)


def _unwrap(dataset: Any) -> Iterator[Any]:
    """The data sets inside Repeat, Concat and ClassBalanced wrappers."""
    dataset = unsliced(dataset)
    inner = getattr(dataset, 'datasets', None)
    if inner is None and hasattr(dataset, 'dataset'):
        inner = [dataset.dataset]
    if inner is None:
        yield dataset
    for part in inner or ():
        yield from _unwrap(part)


def _raise(faults: list[str]) -> None:
    if faults:
        raise ValueError('\n'.join(faults))


# ----------------------------------------------------------------- COCO, LVIS
def _check_coco(dataset: Any, classes: tuple[str, ...],
                training: bool) -> None:
    ids = {name: number for number, name in read_categories(
        dataset.ann_file, dataset.backend_args)}
    counts = {name: len(dataset.cat_img_map.get(number, ()))
              for name, number in ids.items()}
    if not training and not any(counts.values()):
        counts = dict.fromkeys(ids, 1)  # a test set without annotations
    faults = compare_names(dataset.ann_file, classes, counts)
    wanted = [ids[name] for name in classes if name in ids]
    extra = [name for name, number in ids.items()
             if number in set(dataset.cat_ids) - set(wanted)]
    if extra and not faults:
        faults = [f'{type(dataset).__name__} takes all categories of '
                  f'{dataset.ann_file}, but metainfo classes lack '
                  f'{extra[:12]} ({len(extra)} in all)']
    _raise(faults)
    if list(dataset.cat_ids) != wanted:
        _relabel(dataset, wanted)


def _relabel(dataset: Any, wanted: list[int]) -> None:
    """Label ``i`` becomes the category ``wanted[i]``."""
    label = {number: place for place, number in enumerate(wanted)}
    now = [label[number] for number in dataset.cat_ids]

    def change(info: dict) -> None:
        for instance in info['instances']:
            instance['bbox_label'] = now[instance['bbox_label']]

    _rewrite(dataset, change)
    dataset.cat_ids, dataset.cat2label = wanted, label


def _rewrite(dataset: Any, change: Callable[[dict], None]) -> None:
    """Changes every data info of an MMEngine data set in its place."""
    infos = [dataset.get_data_info(i) for i in range(len(dataset))]
    for info in infos:
        change(info)
    dataset.data_list = infos
    if dataset.serialize_data:
        dataset.data_bytes, dataset.data_address = dataset._serialize_data()


def _align_metric(metric: Any, api: Any, classes: tuple[str, ...]) -> None:
    """A metric on a file takes label ``i`` for the category of that name.

    MMDetection's takes it for the i-th category of the file, and for a table
    of classes counts on ascending ids. So it is given ascending ids, and the
    labels of its predictions are turned into places among those.
    """
    if hasattr(metric, 'classes_aligned'):
        return
    metric.classes_aligned = True
    ids = {entry['name']: number for number, entry in api.cats.items()}
    _raise(compare_names(f'the ann_file of {type(metric).__name__}', classes,
                         dict.fromkeys(ids, 1)))
    wanted = [ids[name] for name in classes]
    if metric.cat_ids is not None:  # it names categories as samples come
        metric.cat_ids = wanted
        return
    metric.cat_ids = sorted(wanted)
    place = np.array([metric.cat_ids.index(number) for number in wanted])
    compute = metric.compute_metrics

    def compute_metrics(results: list) -> dict[str, float]:
        for _, prediction in results:
            prediction['labels'] = place[prediction['labels']]
        return compute(results)

    metric.compute_metrics = compute_metrics


# ------------------------------------------------------------------------ VOC
def _check_xml(dataset: Any, classes: tuple[str, ...],
               training: bool) -> None:
    # also the annotations of images that the data set left out, as empty or
    # by its ``indices``
    folder = osp.join(dataset.sub_data_root, dataset.ann_subdir)
    named = Counter(
        node.findtext('name') or '' for image in list_from_file(
            dataset.ann_file) for node in read_xml(
            osp.join(folder, f'{image}.xml')).iterfind('object'))
    if named or training:
        known = named if training else Counter(
            {**dict.fromkeys(classes, 1), **named})
        lost = not set(named) & set(classes)
        _raise(compare_names(dataset.ann_file, classes,
                             named if lost else known, declared=False))
    _find_images(dataset)


def _find_images(dataset: Any) -> None:
    """Takes an image of another suffix where there is no ``.jpg``."""
    files: dict[str, dict[str, str]] = {}
    paths, missing = {}, []
    for index in range(len(dataset)):
        path = dataset.get_data_info(index)['img_path']
        if osp.isfile(path):
            continue
        folder, name = osp.split(path)
        if folder not in files:
            files[folder] = voc_images(folder)
        other = files[folder].get(osp.splitext(name)[0])
        if other is None:
            missing.append(path)
        else:
            paths[path] = osp.join(folder, other)
    if missing:
        raise FileNotFoundError(
            f'{dataset.ann_file}: there is no image {missing[0]}, nor one of '
            f'another suffix ({len(missing)} missing in all)')

    def change(info: dict) -> None:
        info['img_path'] = paths.get(info['img_path'], info['img_path'])

    if paths:
        _rewrite(dataset, change)
