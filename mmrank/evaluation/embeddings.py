"""Embeddings of a whole data set, put together from all processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import torch
from mmengine.dist import get_comm_device
from torch import Tensor

from mmrank.state import Collectives, current


@dataclass
class Embeddings:
    """One row per image, in the order of the sample index.

    Args:
        values (Tensor): shape (N, D), float32 or wider.
        labels (Tensor): shape (N,), int64.
        indices (Tensor): the sample indices, shape (N,), int64.
        is_query (Tensor): bool, shape (N,); all True unless the samples say
            otherwise.
        file_ids (Tensor): shape (N,), int64; two images of one number are
            one file. -1 where the samples do not say.
    """

    values: Tensor
    labels: Tensor
    indices: Tensor
    is_query: Tensor
    file_ids: Tensor


class EmbeddingCollector:
    """Keeps what a process predicts and joins it with the others'.

    Tensors travel, not pickled samples. Samplers give images to two
    processes where the number of images does not divide: of images with one
    sample index the first is kept. Images of other paths or labels are
    others, as in a ``ConcatDataset`` whose parts each count from 0.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self._values: list[Tensor] = []
        self._facts: list[tuple[int, ...]] = []
        self._device = torch.device('cpu')

    def __len__(self) -> int:
        return len(self._values)

    def add(self, sample: dict[str, Any]) -> None:
        """Take one predicted sample, as ``BaseDataElement.to_dict`` gives.

        Raises:
            ValueError: if it lacks its embedding, label or sample index.
        """
        embedding = sample.get('pred_embedding', sample.get('pred_feature'))
        missing = [name for name, there in (
            ('pred_embedding', embedding is not None),
            ('gt_label', 'gt_label' in sample),
            ('sample_idx', 'sample_idx' in sample)) if not there]
        if missing:
            raise ValueError(
                f'a predicted sample lacks {missing}; the model sets '
                'pred_embedding, PackRetrievalInputs gt_label and, by its '
                'meta_keys, sample_idx')
        assert embedding is not None
        self._device = embedding.device
        self._values.append(embedding.detach().cpu())
        label = int(sample['gt_label']['label'])
        self._facts.append((label, int(sample['sample_idx']),
                            bool(sample.get('is_query', True)),
                            int(sample.get('file_id', -1)),
                            _identity(sample.get('img_path'), label)))

    def join(self) -> Embeddings:
        """All processes' embeddings, the same on each; then forget.

        Called by every process, also one that has no sample.
        """
        comm = current()
        device = get_comm_device() if comm.size > 1 else torch.device('cpu')
        facts = torch.tensor(self._facts, dtype=torch.int64).reshape(-1, 5)
        facts = torch.cat(comm.gather(facts.to(device))).cpu()
        values = torch.cat(comm.gather(self._local(comm, device))).cpu()
        # by sample index, images of one index by what tells them apart
        order = torch.argsort(facts[:, 4], stable=True)
        order = order[torch.argsort(facts[order, 1], stable=True)]
        facts = facts[order]
        first = torch.ones(len(facts), dtype=torch.bool)
        first[1:] = (facts[1:, [1, 4]] != facts[:-1, [1, 4]]).any(1)
        facts, kept, target = facts[first], order[first], self._device
        self.clear()
        return Embeddings(
            values=values[kept].to(target),
            labels=facts[:, 0].to(target),
            indices=facts[:, 1].to(target),
            is_query=facts[:, 2].bool().to(target),
            file_ids=facts[:, 3].to(target))

    def _local(self, comm: Collectives, device: torch.device) -> Tensor:
        values: Sequence[Tensor] = self._values
        width = torch.tensor([len(values[0]) if values else 0],
                             device=device)
        width = torch.cat(comm.gather(width)).max()
        if not values:
            return torch.zeros(0, int(width), device=device)
        stacked = torch.stack(list(values))
        return stacked.to(device=device, dtype=torch.promote_types(
            stacked.dtype, torch.float32))


def _identity(path: str | None, label: int) -> int:
    """An integer of 64 bits by which images of one index are told apart."""
    digest = blake2b(f'{label} {path}'.encode(errors='surrogateescape'),
                     digest_size=8)
    return int.from_bytes(digest.digest(), 'big', signed=True)
