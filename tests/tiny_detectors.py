"""Any detector config, shrunk to a few channels, and a batch to step it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from mmdet.registry import MODELS
from mmdet.structures import DetDataSample
from mmdet.structures.mask import BitmapMasks
from mmdet.utils import register_all_modules
from mmengine.config import Config, ConfigDict
from mmengine.structures import InstanceData
from torch import nn

WIDE = ('in_channels', 'out_channels', 'feat_channels', 'embed_dims',
        'fc_out_channels', 'conv_out_channels', 'feedforward_channels')
SMALL = dict(block_mid_channels=8, num_groups=4, num_layers=2, num_queries=12,
             num_dn_queries=6, num_heads=4, nms_pre=50, stacked_convs=1,
             num_convs=1, num_shared_convs=1, num_cls_convs=1,
             max_per_img=10)


def shrink(node: Any, width: int) -> Any:
    """Every width to ``width``, every depth and count to a few."""
    if isinstance(node, (list, tuple)):
        return [shrink(item, width) for item in node]
    if not isinstance(node, dict):
        return node
    small = {}
    for key, value in node.items():
        if key in WIDE and isinstance(value, int):
            value = width
        elif key == 'num_feats':
            value = width // 2
        elif key in SMALL and isinstance(value, int) and value > 1:
            value = SMALL[key]
        else:
            value = shrink(value, width)
        small[key] = value
    return small


def tiny(model: dict, num_classes: int | None = None,
         width: int = 32) -> ConfigDict:
    """A model config of mmdet with a ResNet-18 eight channels wide."""
    model = shrink(Config(dict(model=model)).model.to_dict(), width)
    indices = model['backbone'].get('out_indices', (0, 1, 2, 3))
    if model['backbone']['type'].startswith('Res'):
        model['backbone'] = dict(
            type='ResNet', depth=18, base_channels=8, num_stages=4,
            out_indices=indices, norm_cfg=dict(type='BN'), norm_eval=False)
        necks = model['neck']
        necks = necks if isinstance(necks, list) else [necks]
        channels = [8 * 2**i for i in indices]
        necks[0]['in_channels'] = channels if isinstance(
            necks[0]['in_channels'], list) else channels[-1]
    if 'decoder' in model:
        model['bbox_head']['embed_dims'] = width
    for rcnn in find(model, 'sampler'):
        rcnn['num'] = 32
    if num_classes is not None:
        for head in find(model, None, 'num_classes'):
            head['num_classes'] = num_classes
    return ConfigDict(model)


def find(node: Any, name: str | None, key: str | None = None) -> list[dict]:
    found = []
    if isinstance(node, (list, tuple)):
        for item in node:
            found += find(item, name, key)
    elif isinstance(node, dict):
        if key in node:
            found.append(node)
        for child, value in node.items():
            if child == name:
                found.append(value)
            found += find(value, name, key)
    return found


def build(model: dict) -> nn.Module:
    register_all_modules(init_default_scope=True)
    logging.disable(logging.INFO)  # a line for each parameter
    try:
        detector = MODELS.build(model)
        detector.init_weights()
    finally:
        logging.disable(logging.NOTSET)
    return detector


def make_batch(boxes: list[int], num_classes: int, *, ignored: int = 0,
               size: int = 64, seed: int = 0) -> dict:
    """Packed inputs; ``boxes[i]`` objects and ``ignored`` ones an image."""
    rng = np.random.RandomState(seed)
    inputs, samples = [], []
    for index, count in enumerate(boxes):
        sample = DetDataSample(metainfo=dict(
            img_id=index, img_shape=(size, size), ori_shape=(size, size),
            scale_factor=(1.0, 1.0), batch_input_shape=(size, size)))
        sample.gt_instances = _instances(rng, count, num_classes, size)
        sample.ignored_instances = _instances(rng, ignored, num_classes, size)
        samples.append(sample)
        inputs.append(torch.from_numpy(
            rng.randint(0, 255, (3, size, size), dtype=np.uint8)))
    return dict(inputs=inputs, data_samples=samples)


def _instances(rng: np.random.RandomState, count: int, num_classes: int,
               size: int) -> InstanceData:
    corner = rng.uniform(0, size * 0.5, (count, 2))
    extent = rng.uniform(size * 0.2, size * 0.5, (count, 2))
    masks = np.zeros((count, size, size), np.uint8)
    masks[:, size // 4:size // 2, size // 4:size // 2] = 1
    return InstanceData(
        bboxes=torch.from_numpy(
            np.concatenate([corner, corner + extent], 1)).float(),
        labels=torch.from_numpy(rng.randint(0, num_classes, count)),
        masks=BitmapMasks(masks, size, size))


def step(detector: nn.Module, batch: dict,
         optimizer: torch.optim.Optimizer | None = None) -> dict:
    """One training step; the logged values, the total as ``loss``."""
    detector.train()
    data = detector.data_preprocessor(batch, True)
    total, logged = detector.parse_losses(detector(**data, mode='loss'))
    total.backward()
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
    return {name: value.item() for name, value in logged.items()}


@torch.no_grad()
def predict(detector: nn.Module, batch: dict) -> list[DetDataSample]:
    detector.eval()
    data = detector.data_preprocessor(batch, False)
    return detector(**data, mode='predict')
