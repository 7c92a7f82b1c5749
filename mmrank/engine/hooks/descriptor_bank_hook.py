"""Refreshes the descriptors that AdaSample's bank mode draws from."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.hooks import Hook
from mmengine.runner import IterBasedTrainLoop, Runner
from torch import Tensor

from mmrank.datasets.samplers.class_index import unsliced
from mmrank.models.learners.descriptor_learner import evaluating
from mmrank.registry import HOOKS
from mmrank.state import current

from ..bare_model import bare_model


@HOOKS.register_module()
class DescriptorBankHook(Hook):
    """Describes all training patches at the start of an epoch.

    With several processes each describes its share of the classes. A bank
    that serves several epochs follows from weights that are gone when the
    later ones start, so it is in the checkpoint then, as ``descriptor_bank``;
    one that is made anew every epoch is not.

    To MMEngine an iteration-based run is a single epoch: its bank is made
    once, and grows old. ``AdaSample(mode='online')`` suits such runs.

    Args:
        interval (int): epochs between refreshes; the first epoch of a run
            always has one.
        classes_per_pass (int): classes a forward pass.
    """

    def __init__(self, interval: int = 1, classes_per_pass: int = 256) -> None:
        self.interval = interval
        self.classes_per_pass = classes_per_pass

    def before_train_epoch(self, runner: Runner) -> None:
        """Fill the bank of the model's ``sampler``."""
        model = bare_model(runner)
        sampler = model.sampler
        if sampler.mode != 'bank' or not sampler.needs_descriptors:
            return
        if sampler.bank is not None and (
                _is_one_epoch(runner) or runner.epoch % self.interval):
            return
        dataset = unsliced(runner.train_dataloader.dataset)
        sampler.set_bank(
            describe_classes(model, dataset, self.classes_per_pass))

    def before_save_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Keep the bank where later epochs need it."""
        bank = bare_model(runner).sampler.bank
        lasts = self.interval > 1 or _is_one_epoch(runner)
        if lasts and bank is not None:
            checkpoint['descriptor_bank'] = bank.cpu()

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Go on with the bank of a resumed run."""
        if runner._resume and 'descriptor_bank' in checkpoint:
            bare_model(runner).sampler.set_bank(checkpoint['descriptor_bank'])


def _is_one_epoch(runner: Runner) -> bool:
    return isinstance(runner.train_loop, IterBasedTrainLoop)


@torch.no_grad()
def describe_classes(model: Any, dataset: Any,
                     classes_per_pass: int = 256) -> Tensor:
    """Descriptors of every slot of every class, float32, (C, k, D)."""
    comm = current()
    device = next(model.parameters()).device
    share = -(-len(dataset) // comm.size)
    mine = range(comm.index * share,
                 min((comm.index + 1) * share, len(dataset)))
    rows = []
    with evaluating(model.backbone):
        for start in range(mine.start, mine.stop, classes_per_pass):
            part = mine[start - mine.start:start - mine.start
                        + classes_per_pass]
            patches = torch.stack([dataset[i]['inputs'] for i in part])
            flat = model.describe(patches.flatten(0, 1).to(device))
            rows.append(flat.unflatten(0, patches.shape[:2]))
    return torch.cat(comm.gather(torch.cat(rows)))
