"""Random numbers that a resumed run draws again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop, Runner

from ...registry import HOOKS


@HOOKS.register_module()
class SeedByIterationHook(Hook):
    """Derives the global random state from seed, iteration and process.

    Checkpoints hold no random state, so what draws from it (mmdet's RoI
    sampling, dropout, augmentation in the main process) goes another way
    after a resume. With this hook each iteration starts from a state of its
    own, so a resumed run equals an uninterrupted one. Data workers are seeded
    by MMEngine when an epoch starts: leave ``persistent_workers`` off where
    they augment, and resume at an epoch's end. Iteration-based runs start
    their workers once; where those augment, a resumed one sees the same
    images, but may augment them otherwise: ``num_workers=0`` is exact.

    Args:
        seed (int, optional): Defaults to the runner's (``randomness.seed``).

    Raises:
        ValueError: if ``seed`` is no integer in 0..2**31 - 1.
    """

    priority = 'VERY_HIGH'

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None and (not isinstance(seed, int)
                                 or not 0 <= seed < 2**31):
            raise ValueError(
                f'seed must be an integer in 0..2**31 - 1, but got {seed!r}')
        self.seed = seed

    def _seed(self, runner: Runner, purpose: int) -> None:
        seed = runner.seed if self.seed is None else self.seed
        key = (seed, runner.iter, runner.rank, purpose)
        numpy_seed, torch_seed = np.random.SeedSequence(key).generate_state(2)
        random.seed(int(torch_seed))
        np.random.seed(numpy_seed)
        torch.manual_seed(int(torch_seed))

    def before_train_epoch(self, runner: Runner) -> None:
        """Before the first batch is loaded."""
        self._seed(runner, purpose=0)
        loop = runner.train_loop
        if isinstance(loop, IterBasedTrainLoop):
            # a resumed one may load what it has seen, and draw, before the
            # next batch
            loop.dataloader_iterator = _SeededBatches(
                loop.dataloader_iterator,
                lambda: self._seed(runner, purpose=2))

    def before_train_iter(self,
                          runner: Runner,
                          batch_idx: int,
                          data_batch: Any = None) -> None:
        """Before the model draws."""
        self._seed(runner, purpose=1)

    def after_train_iter(self, runner: Runner, *args: Any,
                         **kwargs: Any) -> None:
        """Before the next batch is loaded, whatever the model has drawn."""
        self._seed(runner, purpose=2)


class _SeededBatches:
    """An iteration-based loop's batches, each after a call of its own."""

    def __init__(self, batches: Any, seed: Callable[[], None]) -> None:
        self.batches = batches
        self.seed = seed

    def __iter__(self) -> _SeededBatches:
        return self

    def __next__(self) -> Any:
        self.seed()
        return next(self.batches)

    def skip_iter(self, number: int) -> None:
        """The maintained MMEngine's way to pass over batches."""
        self.batches.skip_iter(number)
