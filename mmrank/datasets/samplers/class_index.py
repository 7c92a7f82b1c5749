"""The label of every item of a data set, however it is wrapped."""

from __future__ import annotations

from typing import Any

import numpy as np


def unsliced(dataset: Any) -> Any:
    """The data set of which ``num_batch_per_epoch`` made MMEngine take a
    slice: it bounds the length of an epoch, not the items that may occur."""
    sliced = type(dataset).__name__ == '_SlicedDataset'
    return dataset._dataset if sliced else dataset


def labels_of(dataset: Any, key: str = 'gt_label') -> np.ndarray:
    """One integer per item, read without loading an image.

    MMEngine's wrappers (repeated, concatenated, class balanced, sliced for
    ``num_batch_per_epoch``), torch's ``Subset`` and ``ConcatDataset`` are
    looked through; so are wrappers inside wrappers. A data set sliced for
    ``num_batch_per_epoch`` yields the labels of *all* its items.

    Args:
        dataset: a map-style data set. At the innermost level it has
            ``get_labels(key)``, ``get_data_info(i)`` with ``key`` in it, or,
            for the class, ``get_cat_ids(i)``.
        key (str): ``gt_label`` or ``super_label``.

    Returns:
        np.ndarray: int64, shape (number of items,).

    Raises:
        ValueError: if the data set does not tell its labels.
    """
    dataset = unsliced(dataset)
    if hasattr(dataset, 'full_init'):
        dataset.full_init()
    if hasattr(dataset, 'get_labels'):
        return np.asarray(dataset.get_labels(key), dtype=np.int64)
    if hasattr(dataset, 'datasets'):
        return np.concatenate(
            [labels_of(inner, key) for inner in dataset.datasets])
    if hasattr(dataset, 'dataset'):
        inner = labels_of(dataset.dataset, key)
        if hasattr(dataset, 'repeat_indices'):  # ClassBalancedDataset
            return inner[np.asarray(dataset.repeat_indices)]
        if hasattr(dataset, 'indices'):  # Subset
            return inner[np.asarray(dataset.indices)]
        return np.tile(inner, len(dataset) // max(len(inner), 1))
    return np.array(
        [_label(dataset, index, key) for index in range(len(dataset))],
        dtype=np.int64)


def _label(dataset: Any, index: int, key: str) -> int:
    if hasattr(dataset, 'get_data_info'):
        info = dataset.get_data_info(index)
        if key in info:
            return int(info[key])
    if key == 'gt_label' and hasattr(dataset, 'get_cat_ids'):
        labels = list(dataset.get_cat_ids(index))
        if len(labels) == 1:
            return int(labels[0])
        raise ValueError(f'item {index} of {type(dataset).__name__} has '
                         f'{len(labels)} classes; a class-balanced batch '
                         'needs exactly one an item')
    raise ValueError(
        f'{type(dataset).__name__} does not tell {key!r} of its items: give '
        f'it get_labels({key!r}), or {key!r} in its data infos')
