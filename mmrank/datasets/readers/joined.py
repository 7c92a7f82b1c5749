"""Several retrieval data sets as one: labels and sample indices of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from mmengine.dataset import ConcatDataset as _ConcatDataset

from mmrank.registry import DATASETS

KINDS = ('shared', 'separate')


@DATASETS.register_module()
class ConcatDataset(_ConcatDataset):
    """MMEngine's, for training and evaluation on several retrieval sets.

    Of MMEngine's each part counts its samples and its classes from 0. Here
    ``sample_idx`` is the index in the whole, so that an evaluation takes no
    image for another's repetition, and labels are those of the whole.

    Data sets without ``get_labels``, such as a detector's, are joined as
    MMEngine joins them.

    Args:
        datasets (Sequence): data sets, or configs of them.
        labels (str): 'shared', the default: classes of one name are one
            class, and equal labels are one where a part has no names.
            'separate': no two parts share a class; the names are
            ``0/name``, ``1/name`` and so on.
        lazy_init, ignore_keys: MMEngine's.

    Raises:
        ValueError: for an unknown ``labels``, or 'shared' where some parts
            have names of classes and others none.
    """

    def __init__(self,
                 datasets: Sequence[Any],
                 labels: str = 'shared',
                 lazy_init: bool = False,
                 ignore_keys: str | list[str] | None = None) -> None:
        if labels not in KINDS:
            raise ValueError(f'labels must be one of {KINDS}, but got '
                             f'{labels!r}')
        self.labels = labels
        self._maps: dict[str, list[np.ndarray]] = {}
        ignored = [ignore_keys] if isinstance(ignore_keys, str) else list(
            ignore_keys or ())
        parts = [DATASETS.build(part) if isinstance(part, dict) else part
                 for part in datasets]
        if all(hasattr(part, 'get_labels') for part in parts):
            # their names may differ: that is what is joined here
            ignored += ['classes', 'super_classes']
        super().__init__(parts, lazy_init=lazy_init, ignore_keys=ignored)

    def full_init(self) -> None:
        """Reads every part, then numbers the classes of all."""
        if self._fully_initialized:
            return
        super().full_init()
        if not all(hasattr(part, 'get_labels') for part in self.datasets):
            return
        self._number('gt_label', 'classes')
        if all('super_classes' in p.metainfo for p in self.datasets):
            self._number('super_label', 'super_classes')

    def _number(self, key: str, names_key: str) -> None:
        """Maps each part's labels to those of the whole."""
        named = [part.metainfo.get(names_key) for part in self.datasets]
        if any(named) and not all(named) and self.labels == 'shared':
            raise ValueError(
                "labels='shared' joins classes by name, but of the parts "
                f'{[i for i, names in enumerate(named) if not names]} have '
                "no names of classes; set labels='separate'")
        own = [[str(n) for n in names] if names else list(range(
            int(part.get_labels(key).max(initial=-1)) + 1))
            for names, part in zip(named, self.datasets)]
        if self.labels == 'separate':
            own = [[f'{place}/{name}' for name in names]
                   for place, names in enumerate(own)]
            merged = [name for names in own for name in names]
        else:
            merged = sorted({name for names in own for name in names})
        place = {name: number for number, name in enumerate(merged)}
        self._maps[key] = [np.array([place[name] for name in names], np.int64)
                           for names in own]
        self._metainfo: dict = {**self._metainfo,
                                names_key: tuple(map(str, merged))}

    def get_labels(self, key: str = 'gt_label') -> np.ndarray:
        """``gt_label`` or ``super_label`` of all items, int64."""
        self.full_init()
        parts = [part.get_labels(key) for part in self.datasets]
        maps = self._maps.get(key)
        return np.concatenate(parts if maps is None else [
            table[labels] for table, labels in zip(maps, parts)])

    def get_data_info(self, idx: int) -> dict:
        """The facts of an item, its labels and index those of the whole."""
        part, idx, info = self._located(idx, super().get_data_info)
        for key, maps in self._maps.items():
            if key in info:
                info[key] = int(maps[part][info[key]])
        return info | dict(sample_idx=idx) if self._maps else info

    def get_cat_ids(self, idx: int) -> list[int]:
        """The classes of an item, for MMEngine's ``ClassBalancedDataset``."""
        if self._maps:
            return [int(self.get_data_info(idx)['gt_label'])]
        part, inner = self._get_ori_dataset_idx(idx)
        return self.datasets[part].get_cat_ids(inner)

    def __getitem__(self, idx: int) -> dict:
        part, idx, item = self._located(idx, super().__getitem__)
        sample = item.get('data_samples') if self._maps else None
        if sample is None:
            return item
        sample.set_metainfo(dict(sample_idx=idx))
        if hasattr(sample, 'gt_label'):
            label = self._maps['gt_label'][part][int(sample.gt_label.label)]
            sample.set_gt_label(int(label))
        if 'super_label' in sample and 'super_label' in self._maps:
            sample.set_metainfo(dict(super_label=int(
                self._maps['super_label'][part][int(sample.super_label)])))
        return item

    def _located(self, idx: int, get: Any) -> tuple[int, int, Any]:
        """The part of an item, its index from the front, what ``get`` has."""
        self.full_init()
        idx = idx + len(self) if idx < 0 else idx
        return self._get_ori_dataset_idx(idx)[0], idx, get(idx)
