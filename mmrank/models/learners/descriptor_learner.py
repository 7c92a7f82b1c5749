"""Local descriptor learning: preprocessing, selection, loss, prediction."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from mmengine.model import BaseDataPreprocessor, BaseModel
from torch import Tensor, nn

from mmrank.registry import MODELS


def normalize_patches(patches: Tensor) -> Tensor:
    """Each patch with zero mean and unit variance, by itself.

    Args:
        patches (Tensor): shape (N, 1, H, W), any dtype and grey range: the
            result does not depend on gain and offset.

    Returns:
        Tensor: float32, same shape. A constant patch becomes 0.

    Example:
        >>> import torch
        >>> normalize_patches(torch.tensor([[[[1., 3.]]]]))
        tensor([[[[-1.,  1.]]]])
    """
    patches = patches.float()
    mean = patches.mean((1, 2, 3), keepdim=True)
    centred = patches - mean
    std = centred.square().mean((1, 2, 3), keepdim=True).sqrt()
    # what rounding of the mean leaves of a constant patch is no texture
    flat = std <= 1e-5 * mean.abs() + 1e-12
    return centred / std.masked_fill(flat, 1) * (~flat).float()


def turn_patches(patches: Tensor, symmetry: Tensor) -> Tensor:
    """Each patch under its symmetry of the square.

    Args:
        patches (Tensor): shape (N, 1, S, S).
        symmetry (Tensor): int64, shape (N,), in 0..7: quarter turns, plus 4
            for a flip before them. 0 changes nothing.
    """
    flipped = torch.where(symmetry[:, None, None, None] >= 4,
                          patches.flip(3), patches)
    turns = torch.stack(
        [torch.rot90(flipped, turn, (2, 3)) for turn in range(4)])
    return turns[symmetry % 4, torch.arange(len(patches),
                                            device=patches.device)]


@MODELS.register_module()
class PatchDataPreprocessor(BaseDataPreprocessor):
    """Moves patches to the device and makes them one tensor.

    Args:
        patch_size (int): patches of another size are resized (area
            averaging when they shrink).

    A batch of classes, patches (k, 1, S, S) each, is stacked to
    (n, k, 1, S, S) and stays as it is: :meth:`normalize` runs on those
    patches only that go through the network.
    """

    def __init__(self, patch_size: int = 32,
                 non_blocking: bool = False) -> None:
        super().__init__(non_blocking)
        self.patch_size = patch_size

    def forward(self, data: dict, training: bool = False) -> dict:
        data = self.cast_data(data)
        inputs = data['inputs']
        if training and not isinstance(inputs, Tensor):
            inputs = torch.stack(inputs)
        return dict(inputs=inputs, data_samples=data.get('data_samples'))

    def normalize(self, patches: Tensor) -> Tensor:
        """Shape (N, 1, H, W) to the network's input."""
        if patches.shape[-1] != self.patch_size or \
                patches.shape[-2] != self.patch_size:
            patches = F.interpolate(
                patches.float(), (self.patch_size, self.patch_size),
                mode='area')
        return normalize_patches(patches)


class Pairs(NamedTuple):
    """A batch of matching descriptors, without gradient."""
    anchors: Tensor
    """shape (B, D)."""
    positives: Tensor
    """shape (B, D); row i matches row i of the anchors."""
    labels: Tensor
    """int64, shape (B,): class ids."""


@MODELS.register_module()
class DescriptorLearner(BaseModel):
    """A descriptor network that learns from classes of matching patches.

    Args:
        backbone (dict): normalised patches (N, 1, S, S) to descriptors (N, D).
        loss (dict): a :class:`HingeTripletLoss`.
        sampler (dict): an :class:`AdaSample`; its ``distance`` defaults to
            the loss's.
        symmetries (bool): turn and flip both patches of a pair alike, at
            random ("+" in the paper).
        data_preprocessor (dict, optional): default
            :class:`PatchDataPreprocessor`.
        chunk_size (int): patches a forward pass in prediction.

    Training inputs are a batch of classes, see ``PatchClassDataset``:
    patches (k, 1, S, S) each, and data samples with ``class_index``,
    ``class_id`` and ``valid`` (k,). In prediction an input is any set of
    patches (m, 1, S, S), and its data sample comes back with ``descriptors``
    (m, D), float32.

    Attributes:
        pairs (Pairs, optional): the descriptors of the last training batch of
            this process, for hooks that watch them.
    """

    def __init__(self,
                 backbone: dict,
                 loss: dict,
                 sampler: dict | None = None,
                 symmetries: bool = False,
                 data_preprocessor: dict | None = None,
                 chunk_size: int = 1024,
                 init_cfg: dict | None = None) -> None:
        if data_preprocessor is None:
            data_preprocessor = dict(type='mmrank.PatchDataPreprocessor')
        if isinstance(data_preprocessor, dict):
            data_preprocessor = MODELS.build(data_preprocessor)
        super().__init__(data_preprocessor, init_cfg)
        self.backbone = MODELS.build(backbone)
        self.triplet = MODELS.build(loss)
        sampler = dict(sampler or dict(type='mmrank.AdaSample', lambda_val=0))
        sampler.setdefault('distance', self.triplet.distance)
        self.sampler = MODELS.build(sampler)
        self.symmetries = symmetries
        self.chunk_size = chunk_size
        self.pairs: Pairs | None = None

    def forward(self,
                inputs: Any,
                data_samples: Any = None,
                mode: str = 'tensor') -> Tensor | dict | list[dict]:
        """``loss`` -> losses, ``predict`` -> data samples, ``tensor`` ->
        descriptors."""
        if mode == 'loss':
            return self.loss(inputs, data_samples)
        if mode == 'predict':
            return self.predict(inputs, data_samples)
        if mode == 'tensor':
            return self.describe(inputs)
        raise ValueError(f"mode must be 'loss', 'predict' or 'tensor', but "
                         f'got {mode!r}')

    def describe(self, patches: Tensor) -> Tensor:
        """Patches (N, 1, H, W) of any grey range to descriptors (N, D)."""
        return self.backbone(self.data_preprocessor.normalize(patches))

    def loss(self, inputs: Tensor,
             data_samples: dict | list[dict]) -> dict:
        """The loss of one batch of classes, (n, k, 1, S, S)."""
        indices, labels, valid = _targets(
            _rows(data_samples), inputs.device)
        with evaluating(self.backbone):
            seen = self.sampler.descriptors(inputs, indices, self.describe)
        chosen = self.sampler(seen, valid)
        patches = self._pairs(inputs, chosen)
        anchors, positives = self.describe(patches).chunk(2)
        self.pairs = Pairs(anchors.detach(), positives.detach(), labels)
        losses = self.triplet.losses(anchors, positives, labels)
        loss = self.triplet.reduce(losses, chosen.weights)
        self.sampler.update(self.triplet.global_mean(losses))
        return dict(
            loss=loss,
            L_avg=self.sampler.L_avg.clone(),
            d_pos=(anchors - positives).detach().norm(dim=1).mean())

    @torch.no_grad()
    def predict(self, inputs: list[Tensor],
                data_samples: dict | list[dict]) -> list[dict]:
        """Descriptors of each input's patches."""
        counts = [len(patches) for patches in inputs]
        patches = torch.cat(list(inputs))
        rows = torch.cat([
            self.describe(part) for part in patches.split(self.chunk_size)
        ]).split(counts)
        return [
            dict(sample, descriptors=row)
            for sample, row in zip(_rows(data_samples), rows)
        ]

    def _pairs(self, inputs: Tensor, chosen: Any) -> Tensor:
        """The anchors' patches, then the positives'."""
        rows = torch.arange(len(inputs), device=inputs.device)
        patches = torch.cat(
            [inputs[rows, chosen.anchor], inputs[rows, chosen.positive]])
        if self.symmetries:
            patches = turn_patches(patches, chosen.symmetry.repeat(2))
        return patches


def _rows(data_samples: dict | list[dict]) -> list[dict]:
    """One dict a sample; ``pseudo_collate`` makes a dict of lists."""
    if not isinstance(data_samples, dict):
        return data_samples
    columns = data_samples.values()
    return [dict(zip(data_samples, row)) for row in zip(*columns)]


def _targets(data_samples: list[dict],
             device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    columns = [[int(sample[key]) for sample in data_samples]
               for key in ('class_index', 'class_id')]
    indices, labels = torch.tensor(columns, device=device)
    valid = torch.stack([sample['valid'] for sample in data_samples])
    return indices, labels, valid.to(device)


@contextlib.contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Every submodule in evaluation mode, and as it was afterwards."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
