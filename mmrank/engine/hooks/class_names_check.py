"""Stops a run whose class names are not those of the annotations."""

from __future__ import annotations

import os.path as osp
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

from mmengine.fileio import list_from_file
from mmengine.hooks import Hook
from mmengine.runner import Runner

from ...datasets.samplers.class_index import unsliced
from ...registry import HOOKS


@HOOKS.register_module()
class ClassNamesCheckHook(Hook):
    """Raises before the first iteration when a class name is misspelt.

    MMDetection's data sets leave out the objects of a class that the
    config's ``metainfo`` does not list, without a word: a typo costs a
    class, and in COCO's case shifts the labels of those behind it. This
    hook compares the names. A class without an object is fine as long as
    the annotations name no class that is not listed either.

    It knows COCO-like data sets (``cat_ids``) and XML ones (``xml_path`` of
    the samples), inside any wrappers, and passes over others.
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Runner) -> None:
        """Checks the training set.

        Raises:
            ValueError: A class is misspelt.
        """
        for dataset in _unwrap(runner.train_dataloader.dataset):
            classes = dataset.metainfo.get('classes')
            if not classes:
                continue
            if hasattr(dataset, 'cat_ids'):
                _check_coco(dataset, classes)
            elif hasattr(dataset, 'ann_subdir'):
                _check_xml(dataset, classes)


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


def _check_coco(dataset: Any, classes: tuple[str, ...]) -> None:
    if len(dataset.cat_ids) != len(classes):
        raise ValueError(
            f'{dataset.ann_file} knows {len(dataset.cat_ids)} of the '
            f'{len(classes)} classes in metainfo: {tuple(classes)}. Write '
            'them as its "categories" do')


def _check_xml(dataset: Any, classes: tuple[str, ...]) -> None:
    samples = [dataset.get_data_info(i) for i in range(len(dataset))]
    used = {i['bbox_label'] for s in samples for i in s['instances']}
    empty = [c for label, c in enumerate(classes) if label not in used]
    if not empty:
        return
    # only now are the annotations read once more, also those of images that
    # the data set left out, as empty or by its ``indices``
    folder = osp.join(dataset.sub_data_root, dataset.ann_subdir)
    named = {name.text or '' for image in list_from_file(dataset.ann_file)
             for name in ElementTree.parse(
                 osp.join(folder, f'{image}.xml')).iterfind('object/name')}
    missing = [c for c in empty if c not in named]
    unknown = sorted(named - set(classes))
    if missing and unknown:
        raise ValueError(
            f'no object in {dataset.ann_file} is called {missing}, while it '
            f'has objects called {unknown}, which are not in metainfo '
            'classes. Write the classes as the annotations do')
