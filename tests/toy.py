"""A model and data set that train in a moment, for tests of whole runs."""

from __future__ import annotations

from typing import Any

import torch
from mmengine.evaluator import BaseMetric
from mmengine.model import BaseModel
from mmengine.registry import DATASETS, METRICS, MODELS
from torch import nn
from torch.utils.data import Dataset

CONFIG = """
custom_imports = dict(imports=['tests.toy'])
model = dict(type='ToyModel')
train_dataloader = dict(
    batch_size=4, num_workers=0, dataset=dict(type='ToyDataset'),
    sampler=dict(type='DefaultSampler', shuffle=True),
    collate_fn=dict(type='default_collate'))
test_dataloader = dict(
    batch_size=4, num_workers=0, dataset=dict(type='ToyDataset', length=7),
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='default_collate'))
test_evaluator = dict(type='ToyMetric')
test_cfg = dict()
train_cfg = dict(by_epoch=True, max_epochs=3)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.05, momentum=0.9))
param_scheduler = dict(type='MultiStepLR', milestones=[2], gamma=0.1)
default_hooks = dict(
    checkpoint=dict(type='CheckpointHook', interval=1),
    logger=dict(type='LoggerHook', interval=1))
randomness = dict(seed=3)
default_scope = 'mmengine'
"""


@DATASETS.register_module(force=True)
class ToyDataset(Dataset):
    """Points of a plane, with a little noise."""

    def __init__(self, length: int = 16) -> None:
        generator = torch.Generator().manual_seed(7)
        self.points = torch.randn(length, 3, generator=generator)
        self.heights = self.points @ torch.tensor([1.0, -2.0, 0.5])

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return dict(inputs=self.points[index], heights=self.heights[index])


@MODELS.register_module(force=True)
class ToyModel(BaseModel):
    """A plane; its dropout asks the random generator at every step."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.plane = nn.Linear(3, 1)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer('steps', torch.zeros((), dtype=torch.long))

    def init_weights(self) -> None:
        nn.init.zeros_(self.plane.weight)
        nn.init.zeros_(self.plane.bias)

    def forward(self, inputs: torch.Tensor, heights: torch.Tensor,
                mode: str = 'tensor') -> Any:
        predicted = self.plane(self.dropout(inputs)).squeeze(-1)
        if mode == 'loss':
            self.steps += 1
            return dict(loss=(predicted.float() - heights).square().mean())
        return [dict(error=error) for error in (predicted - heights).abs()]


@METRICS.register_module(force=True)
class ToyMetric(BaseMetric):
    """The mean error and the number of samples."""

    def process(self, data_batch: Any, data_samples: Any) -> None:
        self.results += [sample['error'].item() for sample in data_samples]

    def compute_metrics(self, results: list) -> dict[str, float]:
        return dict(error=sum(results) / len(results), samples=len(results))
