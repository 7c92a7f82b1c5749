"""Batches of distinct classes, for data sets whose items are classes."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
from mmengine.dist import get_dist_info, sync_random_seed
from torch.utils.data import Sampler

from mmrank.registry import DATA_SAMPLERS

from .class_index import unsliced


@DATA_SAMPLERS.register_module()
class DistinctClassSampler(Sampler):
    """Indices such that no global batch holds one twice.

    The classes are shuffled, cut into global batches (the rest of fewer
    classes is left to the next shuffle), and shuffled anew until the epoch
    is full. So each class comes floor or ceil of its share, rests aside.

    Args:
        dataset (Sized): an item is a class.
        batch_size (int): of one process, the data loader's.
        num_samples (int, optional): pairs an epoch over all processes;
            rounded down to whole global batches. None: each class about
            once, or what the dataloader's ``num_batch_per_epoch`` says.
        seed (int, optional): equal on all processes; None draws one.

    Raises:
        ValueError: if a global batch needs more classes than there are, or
            an epoch would be empty.
    """

    def __init__(self,
                 dataset: Sized,
                 batch_size: int,
                 num_samples: int | None = None,
                 seed: int | None = None) -> None:
        if batch_size < 1:
            raise ValueError(
                f'batch_size must be at least 1, but got {batch_size}')
        self.index, self.size = get_dist_info()
        self.classes = len(unsliced(dataset))
        self.batch_size = batch_size
        self.global_batch = batch_size * self.size
        if self.global_batch > self.classes:
            raise ValueError(
                f'batch_size={batch_size} on {self.size} process(es) needs '
                f'{self.global_batch} distinct classes, but the data set has '
                f'{self.classes}')
        total = len(dataset) if num_samples is None else num_samples
        self.batches = total // self.global_batch
        if self.batches < 1:
            raise ValueError(f'num_samples={num_samples} is less than one '
                             f'global batch of {self.global_batch}')
        self.seed = sync_random_seed() if seed is None else seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        start = self.index * self.batch_size
        left = self.batches
        while left > 0:
            order = torch.randperm(self.classes, generator=generator)
            for batch in order.split(self.global_batch):
                if left == 0 or len(batch) < self.global_batch:
                    break
                left -= 1
                yield from batch[start:start + self.batch_size].tolist()

    def __len__(self) -> int:
        """Indices of this process in an epoch."""
        return self.batches * self.batch_size

    def set_epoch(self, epoch: int) -> None:
        """Shuffle in another way."""
        self.epoch = epoch
