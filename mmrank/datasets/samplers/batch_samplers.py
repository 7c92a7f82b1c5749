"""Batches of a chosen make-up, for losses that compare items in a batch.

How they stand in a config: MMEngine hands a batch sampler the sampler and
the batch size of its dataloader, and tells the epoch to that inner sampler
only. So the inner sampler is the one who knows data set, seed and epoch::

    train_dataloader = dict(
        batch_size=128,
        sampler=dict(type='DefaultSampler', shuffle=True),
        batch_sampler=dict(
            type='mmrank.ClassBalancedBatchSampler', samples_per_class=4))

With ``InfiniteSampler`` as the inner one, the batches never end. An epoch
depends on the seed and the epoch's number alone, so a resumed training meets
the batches that it would have met.

``batch_size`` counts a process's items, as everywhere in MMEngine. What is
promised about a batch holds for the *global* batch, that of all processes
together: each takes its own stretch of one list that all derive alike.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from mmengine.dataset import InfiniteSampler
from mmengine.dist import get_dist_info, sync_random_seed
from torch.utils.data import Sampler

from mmrank.registry import DATA_SAMPLERS

from .class_index import labels_of


class _Deck:
    """Draws without repeats until all were drawn, then shuffles again.

    No draw holds an item twice as long as there are enough of them.
    """

    def __init__(self, items: Sequence[int] | np.ndarray,
                 rng: np.random.Generator) -> None:
        self.items = np.asarray(items)
        self.rng = rng
        self.left: list[int] = []

    def draw(self, number: int) -> list[int]:
        drawn = self.left[:number]
        self.left = self.left[number:]
        while len(drawn) < number:
            need = number - len(drawn)
            fresh = self.rng.permutation(self.items).tolist()
            if len(fresh) >= number:
                here = set(drawn)
                first = [i for i in fresh if i not in here][:need]
                taken = set(first)
                self.left = [i for i in fresh if i not in taken]
                drawn += first
            else:
                drawn += fresh[:need]
                self.left = fresh[need:]
        return drawn


class _GroupBatchSampler(Sampler[list[int]]):
    """What both samplers share: epochs, processes, the class index."""

    def __init__(self, sampler: Any, batch_size: int, samples_per_class: int,
                 small_classes: str, drop_last: bool,
                 num_batches: int | None) -> None:
        if not hasattr(sampler, 'dataset'):
            raise ValueError(
                f'the inner sampler {type(sampler).__name__} has no data set;'
                ' use DefaultSampler or InfiniteSampler')
        for name, value in dict(samples_per_class=samples_per_class,
                                num_batches=num_batches).items():
            if value is not None and (
                    not isinstance(value, int) or value < 1):
                raise ValueError(
                    f'{name} must be an integer of at least 1, but got '
                    f'{value!r}')
        if small_classes not in ('repeat', 'exclude'):
            raise ValueError("small_classes must be 'repeat' or 'exclude', "
                             f'but got {small_classes!r}')
        self.sampler = sampler
        self.batch_size = batch_size
        self.samples_per_class = samples_per_class
        self.drop_last = drop_last
        self.process_index, self.num_processes = get_dist_info()
        seed = getattr(sampler, 'seed', None)
        self.seed = sync_random_seed() if seed is None else seed
        self.infinite = isinstance(sampler, InfiniteSampler)

        self.global_batch_size = batch_size * self.num_processes
        self.classes_per_batch, odd = divmod(self.global_batch_size,
                                             samples_per_class)
        if odd or self.classes_per_batch < 2:
            raise ValueError(
                f'the global batch ({self.num_processes} processes x '
                f'batch_size {batch_size}) must hold a whole number of '
                'classes, at least 2, of samples_per_class='
                f'{samples_per_class} items')
        self.indices = _by_label(
            labels_of(sampler.dataset), samples_per_class, small_classes)
        self.num_batches = num_batches

    def _default_length(self) -> int:
        """Batches that hold as many items as the data set, or its slice."""
        share = len(self.sampler.dataset) / self.global_batch_size
        return max(1, math.floor(share) if self.drop_last else
                   math.ceil(share))

    def __len__(self) -> int:
        """Batches of an epoch, the same on every process."""
        return self.num_batches or self._default_length()

    def __iter__(self) -> Iterator[list[int]]:
        epoch = getattr(self.sampler, 'epoch', 0)
        start = self.process_index * self.batch_size
        while True:
            rng = np.random.default_rng((self.seed, epoch))
            for batch in self._batches(rng):
                yield batch[start:start + self.batch_size]
            if not self.infinite:
                return
            epoch += 1

    def _batches(self, rng: np.random.Generator) -> Iterator[list[int]]:
        """The global batches of an epoch."""
        raise NotImplementedError


@DATA_SAMPLERS.register_module()
class ClassBalancedBatchSampler(_GroupBatchSampler):
    """Every global batch holds P distinct classes with K items of each.

    ``K`` is ``samples_per_class`` and ``P`` follows from the batch size. The
    classes are drawn without repeats until all had their turn, and so are
    the items of a class; over ``L`` batches of an epoch a class occurs
    ``floor(L P / C)`` or ``ceil(L P / C)`` times.

    Args:
        sampler (Sampler): the dataloader's ``DefaultSampler`` or
            ``InfiniteSampler``; filled in by MMEngine.
        batch_size (int): items a process; filled in by MMEngine. The number
            of processes times it must be a multiple of K, at least 2 K.
        samples_per_class (int): K.
        small_classes (str): classes of fewer than K items have their items
            repeated ('repeat') or are never drawn ('exclude').
        coverage (bool): make an epoch of every item once. Items of a class
            whose number is no multiple of K are repeated to fill the last K.
            Where few classes hold most items, the last batches are filled up
            with items seen before, or left out with ``drop_last``.
        drop_last (bool): round the length of an epoch down.
        num_batches (int, optional): batches an epoch. By default as many as
            hold the number of items of the data set, or as the dataloader's
            ``num_batch_per_epoch`` says.

    Raises:
        ValueError: if the batch size does not fit, fewer than P classes are
            left, or the data set does not tell its labels.
    """

    def __init__(self,
                 sampler: Any,
                 batch_size: int,
                 samples_per_class: int,
                 small_classes: str = 'repeat',
                 coverage: bool = False,
                 drop_last: bool = True,
                 num_batches: int | None = None) -> None:
        super().__init__(sampler, batch_size, samples_per_class,
                         small_classes, drop_last, num_batches)
        self.coverage = coverage
        if len(self.indices) < self.classes_per_batch:
            raise ValueError(
                f'a batch wants {self.classes_per_batch} classes of '
                f'{samples_per_class} items, but the data set offers '
                f'{len(self.indices)}; raise samples_per_class, lower '
                "batch_size or set small_classes='repeat'")
        if coverage and num_batches is not None:
            raise ValueError('coverage fixes the length of an epoch; leave '
                             'num_batches out')
        if coverage:
            self.num_batches = self._coverage_length()

    def _coverage_length(self) -> int:
        groups = np.array([
            math.ceil(len(items) / self.samples_per_class)
            for items in self.indices
        ])
        wanted = self.classes_per_batch
        if not self.drop_last:
            return max(int(groups.max()), math.ceil(groups.sum() / wanted))
        # as many batches as can be filled with distinct classes
        length = int(groups.sum()) // wanted
        while np.minimum(groups, length).sum() < length * wanted:
            length -= 1
        if length < 1:
            raise ValueError('drop_last leaves no batch of an epoch that '
                             'covers every item once; set drop_last=False')
        return length

    def _batches(self, rng: np.random.Generator) -> Iterator[list[int]]:
        if self.coverage:
            yield from self._covering_batches(rng)
            return
        classes = _Deck(range(len(self.indices)), rng)
        items = [_Deck(indices, rng) for indices in self.indices]
        for _ in range(len(self)):
            yield [
                item for c in classes.draw(self.classes_per_batch)
                for item in items[c].draw(self.samples_per_class)
            ]

    def _covering_batches(self,
                          rng: np.random.Generator) -> Iterator[list[int]]:
        """The class with most items left goes first; ties at random."""
        size = self.samples_per_class
        groups = [_groups(rng.permutation(i), size) for i in self.indices]
        heap = [(-len(left), draw, c) for c, (left, draw) in enumerate(
            zip(groups, rng.permutation(len(groups)).tolist()))]
        heapq.heapify(heap)
        for _ in range(len(self)):
            taken = [heapq.heappop(heap)
                     for _ in range(min(self.classes_per_batch, len(heap)))]
            batch = [item for _, _, c in taken for item in groups[c].pop()]
            missing = self.classes_per_batch - len(taken)
            if missing:
                used = {c for _, _, c in taken}
                others = [c for c in range(len(groups)) if c not in used]
                for c in rng.permutation(others)[:missing]:
                    batch += _Deck(self.indices[c], rng).draw(size)
            yield batch
            for _, _, c in taken:
                if groups[c]:
                    heapq.heappush(
                        heap, (-len(groups[c]), rng.random(), c))


@DATA_SAMPLERS.register_module()
class SuperLabelBatchSampler(_GroupBatchSampler):
    """Runs of batches whose classes come from two super-labels only.

    A pair of super-labels serves ``batches_per_pair`` consecutive batches,
    half of each batch from either; then the next pair follows. Within a
    batch negatives are thus of a kind with the query, and so is a memory of
    the last batches. Pairs are drawn, never enumerated; all super-labels
    have their turn before one comes again.

    Every batch is full: a super-label with fewer classes than half a batch
    wants yields further items of those classes.

    Args:
        sampler (Sampler): as in :class:`ClassBalancedBatchSampler`; its data
            set tells a ``super_label`` of each item.
        batch_size (int): items a process; the global batch must hold an even
            number of classes.
        samples_per_class (int): items of a class in a batch.
        batches_per_pair (int): the paper's 10 for SOP, 4 for In-Shop.
        small_classes (str): as in :class:`ClassBalancedBatchSampler`.
        drop_last (bool): round the length of an epoch down.
        num_batches (int, optional): batches an epoch.

    Raises:
        ValueError: if the batch size does not fit, there are fewer than two
            super-labels, or a class has two.

    Source: Rolinek et al., RaMBO, supplement A.
    """

    def __init__(self,
                 sampler: Any,
                 batch_size: int,
                 samples_per_class: int,
                 batches_per_pair: int = 10,
                 small_classes: str = 'repeat',
                 drop_last: bool = True,
                 num_batches: int | None = None) -> None:
        super().__init__(sampler, batch_size, samples_per_class,
                         small_classes, drop_last, num_batches)
        if self.classes_per_batch % 2:
            raise ValueError(
                f'half of the {self.classes_per_batch} classes of a batch is '
                'no whole number; change batch_size or samples_per_class')
        if batches_per_pair < 1:
            raise ValueError('batches_per_pair must be at least 1, but got '
                             f'{batches_per_pair}')
        self.batches_per_pair = batches_per_pair
        super_labels = labels_of(sampler.dataset, 'super_label')
        self.members = _members(self.indices, super_labels)
        if len(self.members) < 2:
            raise ValueError('pairs of super-labels need at least 2, but the '
                             f'data set has {len(self.members)}')

    def _batches(self, rng: np.random.Generator) -> Iterator[list[int]]:
        pairs = _Deck(range(len(self.members)), rng)
        items = [_Deck(indices, rng) for indices in self.indices]
        half = self.classes_per_batch // 2
        decks: list[_Deck] = []
        for number in range(len(self)):
            if number % self.batches_per_pair == 0:
                decks = [_Deck(self.members[s], rng) for s in pairs.draw(2)]
            yield [
                item for deck in decks for c in deck.draw(half)
                for item in items[c].draw(self.samples_per_class)
            ]


def _by_label(labels: np.ndarray, least: int,
              small_classes: str) -> list[np.ndarray]:
    """The items of every class that may be drawn."""
    order = np.argsort(labels, kind='stable')
    _, first = np.unique(labels[order], return_index=True)
    classes = np.split(order, first[1:]) if len(labels) else []
    if small_classes == 'exclude':
        classes = [items for items in classes if len(items) >= least]
    return classes


def _members(indices: Sequence[np.ndarray],
             super_labels: np.ndarray) -> list[list[int]]:
    """The classes of every super-label."""
    members: dict[int, list[int]] = {}
    for c, items in enumerate(indices):
        found = np.unique(super_labels[items])
        if len(found) > 1:
            raise ValueError(
                f'the class of item {items[0]} has several super-labels: '
                f'{found.tolist()}')
        members.setdefault(int(found[0]), []).append(c)
    return [members[label] for label in sorted(members)]


def _groups(items: np.ndarray, size: int) -> list[list[int]]:
    """Groups of ``size``; the last is filled from the items before it."""
    missing = -len(items) % size
    filled = np.concatenate([items, np.resize(items, missing)])
    return filled.reshape(-1, size).tolist()
