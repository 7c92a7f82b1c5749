"""What losses remember of earlier batches.

The contents are the same on every process (a caller that runs on several
gathers before it remembers), are saved with the model's state dict, and are
never read or filled in evaluation: that is the caller's duty.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn


class BatchMemory(nn.Module):
    """The last ``num_batches`` batches, first in, first out.

    A batch is a set of equally long tensors, one a field; batches may differ
    in length. The fields stand in the state dict as ``<field>`` and the
    batches' lengths as ``lengths``, once something is remembered.

    They are deliberately not registered as buffers: their length varies,
    which MMEngine's averaged models cannot copy, and ``SyncBuffersHook`` or a
    buffer broadcast must not touch them. A deep copy starts empty, so that an
    averaged copy of a model neither keeps nor saves a second memory.

    Args:
        num_batches (int): how many batches are kept, the papers' tau. 0
            remembers nothing.
        fields (tuple[str]): the names of a batch's tensors.

    Raises:
        ValueError: if ``num_batches`` is negative or no integer.
    """

    def __init__(self, num_batches: int, fields: tuple[str, ...]) -> None:
        super().__init__()
        if not isinstance(num_batches, int) or num_batches < 0:
            raise ValueError('memory_batches must be an integer >= 0, but '
                             f'got {num_batches!r}')
        self.num_batches = num_batches
        self.fields = tuple(fields)
        self._batches: list[dict[str, Tensor]] = []
        self._register_state_dict_hook(_write_batches)  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        """Number of remembered batches."""
        return len(self._batches)

    def read(self) -> dict[str, Tensor] | None:
        """All remembered batches joined, oldest first; None when empty."""
        if not self._batches:
            return None
        return {
            name: torch.cat([batch[name] for batch in self._batches])
            for name in self.fields
        }

    def batches(self) -> list[dict[str, Tensor]]:
        """The remembered batches apart, oldest first."""
        return list(self._batches)

    def remember(self, **batch: Tensor) -> None:
        """Append one batch, detached, and drop the oldest beyond the size.

        Args:
            batch (Tensor): one tensor a field, shape (n, ...), equal ``n``.
        """
        assert set(batch) == set(self.fields), (set(batch), self.fields)
        if self.num_batches == 0:
            return
        self._batches.append(
            {name: tensor.detach().clone() for name, tensor in batch.items()})
        del self._batches[:-self.num_batches]

    def reset(self) -> None:
        """Forget everything."""
        self._batches.clear()

    def extra_repr(self) -> str:
        return f'num_batches={self.num_batches}, fields={self.fields}'

    def __deepcopy__(self, memo: dict[int, Any]) -> BatchMemory:
        copy = BatchMemory(self.num_batches, self.fields).train(self.training)
        memo[id(self)] = copy
        return copy

    def _apply(self, fn: Any, recurse: bool = True) -> BatchMemory:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # follow the module to a device, but keep the dtype: float32 scores
        # must not be rounded by ``model.half()``
        self._batches = [{
            name: tensor.to(fn(tensor).device)
            for name, tensor in batch.items()
        } for batch in self._batches]
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str,
                              *args: Any) -> None:
        keys = [prefix + name for name in (*self.fields, 'lengths')]
        found = [key in state_dict for key in keys]
        self.reset()
        if not any(found):
            return
        if not all(found):
            missing = [key for key, here in zip(keys, found) if not here]
            raise ValueError(f'the checkpoint holds only a part of the '
                             f'memory; missing: {missing}')
        *packed, lengths = [state_dict[key] for key in keys]
        lacking = [key for key, tensor in zip(keys, packed)
                   if len(tensor) != int(lengths.sum())]
        if lacking:
            raise ValueError(
                f'the checkpoint\'s memory is damaged: {keys[-1]!r} tells of '
                f'{int(lengths.sum())} entries, of which {lacking} hold '
                'another number')
        pieces = [tensor.split(lengths.tolist()) for tensor in packed]
        for batch in zip(*pieces):
            self.remember(**dict(zip(self.fields, batch)))


def _write_batches(module: BatchMemory, destination: dict[str, Any],
                   prefix: str, local_metadata: dict[str, Any]) -> None:
    """State dict hook; MMEngine's own ``get_state_dict`` calls it as well."""
    content = module.read()
    if content is None:
        return
    for name, tensor in content.items():
        destination[prefix + name] = tensor
    lengths = [len(batch[module.fields[0]]) for batch in module._batches]
    destination[prefix + 'lengths'] = torch.tensor(lengths)


# of the class sums' fixed-point numbers: exact to 1e-12, and 2^22 entries of
# length 1 fit into 63 bits
_UNITS = 2.0**40


class EmbeddingQueue(nn.Module):
    """The last ``size`` embeddings with their labels, first in, first out.

    A ring of fixed shape, all of it buffers: ``embeddings`` (T, D) float32,
    ``labels`` (T,) int64 with -1 for a slot that was never filled, ``cursor``,
    the slot written next, and ``count``, how many are filled. A checkpoint
    thus restores it exactly, and MMEngine's averaged models and buffer
    synchronisation find tensors of constant shape.

    With ``num_classes`` it also keeps the sum of each class's embeddings, at
    a cost that does not depend on T, for :meth:`class_means`. The sums are
    integers, in units of 2^-40, so adding and removing is exact: whatever the
    history, on any device and process, equal contents have equal means.

    Args:
        size (int): the capacity T, >= 1.
        embedding_size (int): the width D.
        num_classes (int): number of classes C; 0 keeps no sums.

    Raises:
        ValueError: if an argument is no positive integer.

    Example:
        >>> import torch
        >>> queue = EmbeddingQueue(3, 1)
        >>> queue.enqueue(torch.tensor([[1.], [2.]]), torch.tensor([1, 2]))
        >>> queue.enqueue(torch.tensor([[3.], [4.]]), torch.tensor([3, 4]))
        >>> len(queue), queue.read()[1]
        (3, tensor([2, 3, 4]))
    """

    embeddings: Tensor
    labels: Tensor
    cursor: Tensor
    count: Tensor
    # class sums (C + 1, D) and members (C + 1,); None is "not computed yet"
    _tally: tuple[Tensor, Tensor] | None = None

    def __init__(self, size: int, embedding_size: int,
                 num_classes: int = 0) -> None:
        super().__init__()
        for name, value in dict(
                memory_size=size, embedding_size=embedding_size).items():
            if not isinstance(value, int) or value < 1:
                raise ValueError(
                    f'{name} must be an integer >= 1, but got {value!r}')
        self.num_classes = num_classes
        self.register_buffer('embeddings', torch.zeros(size, embedding_size))
        self.register_buffer('labels', torch.full((size, ), -1))
        self.register_buffer('cursor', torch.tensor(0))
        self.register_buffer('count', torch.tensor(0))

    def __len__(self) -> int:
        """Number of remembered embeddings."""
        return int(self.count)

    def enqueue(self, embeddings: Tensor, labels: Tensor) -> None:
        """Remember a batch, the oldest entries making room.

        Args:
            embeddings (Tensor): shape (n, D), detached and kept as float32;
                of a batch longer than the capacity the last rows stay.
            labels (Tensor): shape (n,), integers >= 0.
        """
        size = len(self.labels)
        embeddings, labels = embeddings.detach()[-size:], labels[-size:]
        n = len(labels)
        slots = (self.cursor
                 + torch.arange(n, device=self.labels.device)) % size
        self._count(self.embeddings[slots], self.labels[slots], -1)
        self.embeddings[slots] = embeddings.to(self.embeddings)
        self.labels[slots] = labels.to(self.labels)
        self._count(self.embeddings[slots], self.labels[slots], 1)
        self.cursor.add_(n).remainder_(size)
        self.count.add_(n).clamp_(max=size)

    def read(self) -> tuple[Tensor, Tensor]:
        """Embeddings (M, D) and labels (M,), oldest first; M may be 0."""
        n = len(self)
        slots = (self.cursor - n
                 + torch.arange(n, device=self.labels.device)) % len(
                     self.labels)
        return self.embeddings[slots], self.labels[slots]

    def class_means(self, classes: Tensor) -> tuple[Tensor, Tensor]:
        """The mean remembered embedding of some classes.

        Args:
            classes (Tensor): shape (n,), integers in [0, C), in any order,
                also repeated.

        Returns:
            tuple[Tensor, Tensor]: means (n, D), zeros where nothing is
            remembered, and how many embeddings each is of, (n,).
        """
        assert self.num_classes, 'made without num_classes'
        if self._tally is None:
            width = self.embeddings.shape[1]
            self._tally = (
                self.labels.new_zeros(self.num_classes + 1, width),
                self.labels.new_zeros(self.num_classes + 1))
            self._count(self.embeddings, self.labels, 1)
        sums, members = (part[classes] for part in self._tally)
        means = sums.double() / _UNITS / members.clamp(min=1).unsqueeze(1)
        return means.to(self.embeddings.dtype), members

    def _count(self, embeddings: Tensor, labels: Tensor, sign: int) -> None:
        if self._tally is None:
            return
        # an unused slot's label -1 counts in the last row, of no class
        rows = labels % (self.num_classes + 1)
        units = (embeddings.double() * _UNITS).round().long()
        self._tally[0].index_add_(0, rows, units, alpha=sign)
        self._tally[1].index_add_(0, rows, torch.ones_like(rows), alpha=sign)

    def train(self, mode: bool = True) -> EmbeddingQueue:
        """Sets the mode. Class sums are then counted anew: loops call this
        every epoch, around which buffers may be synchronised or loaded."""
        self._tally = None
        return super().train(mode)

    def reset(self) -> None:
        """Forget everything."""
        self._tally = None
        self.embeddings.zero_()
        self.labels.fill_(-1)
        self.cursor.zero_()
        self.count.zero_()

    def extra_repr(self) -> str:
        size, embedding_size = self.embeddings.shape
        return f'size={size}, embedding_size={embedding_size}'

    def _apply(self, fn: Any, recurse: bool = True) -> EmbeddingQueue:
        # follow the module to a device, but keep the dtype
        self._tally = None
        kept = self.embeddings
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.embeddings = kept.to(self.embeddings.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str,
                              *args: Any) -> None:
        self._tally = None
        names = ('embeddings', 'labels', 'cursor', 'count')
        if not all(prefix + name in state_dict for name in names):
            # reported as missing keys by the caller
            super()._load_from_state_dict(state_dict, prefix, *args)
            return
        embeddings, labels, cursor, count = (
            state_dict[prefix + name] for name in names)
        if embeddings.shape[1:] != self.embeddings.shape[1:]:
            raise ValueError(
                f'the checkpoint remembers embeddings of width '
                f'{embeddings.shape[1]} under {prefix!r}, the model makes '
                f'them {self.embeddings.shape[1]} wide')
        if len(labels) == len(self.labels):
            super()._load_from_state_dict(state_dict, prefix, *args)
            return
        warnings.warn(
            f'{prefix!r} was saved with memory_size={len(labels)} and is '
            f'loaded with {len(self.labels)}: the newest entries that fit '
            'are kept', stacklevel=2)
        slots = (cursor - count + torch.arange(
            int(count), device=labels.device)) % len(labels)
        self.reset()
        self.enqueue(embeddings[slots], labels[slots])
