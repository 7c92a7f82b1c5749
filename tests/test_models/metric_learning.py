"""A tiny metric learner and a runner for it, shared by several tests."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import torch
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import Dataset

from mmrank.registry import DATASETS, MODELS
from mmrank.structures import RetrievalDataSample

NUM_CLASSES, WIDTH = 4, 6
_runs = count()


@MODELS.register_module()
class TinyBackbone(nn.Module):
    """Convolution, batch norm, ReLU: (B, 3, H, W) to ((B, 8, h, w),)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)
        self.bn = nn.BatchNorm2d(8)

    def forward(self, inputs: Tensor) -> tuple[Tensor]:
        return (self.bn(self.conv(inputs)).relu(), )


@DATASETS.register_module()
class NoisyColours(Dataset):
    """Class c is a colour; noise makes the instances."""

    def __init__(self, length: int = 20) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        generator = torch.Generator().manual_seed(index)
        label = index % NUM_CLASSES
        colour = torch.rand(
            3, 1, 1, generator=torch.Generator().manual_seed(1000 + label))
        noise = torch.rand(3, 9, 9, generator=generator)
        sample = RetrievalDataSample(metainfo=dict(sample_idx=index))
        return dict(inputs=colour + 0.5 * noise,
                    data_samples=sample.set_gt_label(label))


def learner(loss: str = 'ProxyAnchorLoss', head: dict | None = None,
            **loss_options: Any) -> dict:
    """The config of a learner."""
    return dict(
        type='mmrank.MetricLearner',
        backbone=dict(type='mmrank.TinyBackbone'),
        head=dict(
            type='mmrank.MetricLearningHead',
            in_channels=8,
            embedding_size=WIDTH,
            num_classes=NUM_CLASSES,
            loss=dict(type=f'mmrank.{loss}', **loss_options)) | (head or {}))


def runner(work_dir: Path, model: dict, max_epochs: int = 1,
           **options: Any) -> Runner:
    """A runner that trains ``model`` on 20 images in batches of 4."""
    optim_wrapper = dict(
        type='OptimWrapper',
        optimizer=dict(type='AdamW', lr=1e-3, weight_decay=1e-4),
        paramwise_cfg=dict(custom_keys={
            'head.proxies': dict(lr_mult=100, decay_mult=0)
        }),
        clip_grad=dict(type='value', clip_value=10))
    config: dict[str, Any] = dict(
        model=model,
        work_dir=str(work_dir),
        train_dataloader=dict(
            batch_size=4,
            num_workers=0,
            dataset=dict(type='mmrank.NoisyColours'),
            sampler=dict(type='DefaultSampler', shuffle=True)),
        train_cfg=dict(by_epoch=True, max_epochs=max_epochs),
        optim_wrapper=optim_wrapper,
        default_scope='mmengine',
        randomness=dict(seed=0),
        log_level='ERROR',
        experiment_name=f'metric_learning_{next(_runs)}')
    return Runner(**(config | options))
