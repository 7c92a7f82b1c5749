"""Every message between processes; a no-op for a process that is alone.

Losses speak to the other processes through a :class:`Collectives` object
only. It counts the bytes that this process sends and receives, so tests and
the scaling page measure communication instead of guessing it.

Legend: ``W`` processes, ``process_index`` in ``0..W-1``; the order of a
gathered result is always that of the process index, on every process.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class Collectives:
    """Messages among the processes of one group.

    Args:
        group (ProcessGroup, optional): the processes that take part. ``None``
            is the default group, or this process alone where no group was
            initialised.

    Attributes:
        size (int): number of processes ``W``, 1 when alone.
        index (int): this process's index, 0 when alone.
        received_bytes (int): payload bytes received from the *other*
            processes so far, padding included.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        together = dist.is_available() and dist.is_initialized()
        self.size = dist.get_world_size(group) if together else 1
        self.index = dist.get_rank(group) if together else 0
        self.received_bytes = 0

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of every process, without gradient.

        Args:
            tensor (Tensor): shape (n, ...); only ``n`` may differ between
                processes, and may be 0.

        Returns:
            list[Tensor]: ``W`` tensors in process order, each of its
            process's own length.
        """
        tensor = tensor.detach()
        if self.size == 1:
            return [tensor]
        lengths = self._lengths(tensor)
        longest = max(lengths)
        if longest == 0:
            return [tensor] * self.size
        padded = tensor.new_zeros((longest, *tensor.shape[1:]))
        padded[:tensor.shape[0]] = tensor
        # gloo and nccl move no booleans: they travel as bytes
        wire = padded.view(torch.uint8) if padded.dtype == torch.bool \
            else padded
        pieces = [torch.empty_like(wire) for _ in range(self.size)]
        dist.all_gather(pieces, wire, group=self.group)
        self._count(wire)
        return [
            piece.view(padded.dtype)[:length]
            for piece, length in zip(pieces, lengths)
        ]

    def gather_with_gradient(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes joined along dim 0, differentiable.

        The backward pass sums the gradients of all processes. With a loss
        that every process computes on the joined batch, DDP's averaging then
        yields the gradient of that loss for the backbone **and** for
        parameters used after the gather, with no rescaling of the loss.

        Args:
            tensor (Tensor): shape (n, ...), ``n`` may differ and may be 0.

        Returns:
            Tensor: shape (sum of n, ...), in process order.
        """
        if self.size == 1:
            return tensor
        gathered: Tensor = _GatherWithGradient.apply(  # type: ignore[no-untyped-call]
            tensor, self)
        return gathered

    def sum(self, tensor: Tensor) -> Tensor:
        """The elementwise sum over processes; a new tensor, no gradient."""
        total = tensor.detach().clone()
        if self.size > 1 and total.numel() > 0:
            dist.all_reduce(total, group=self.group)
            self._count(total)
        return total

    def _lengths(self, tensor: Tensor) -> list[int]:
        mine = torch.tensor([tensor.shape[0]], device=tensor.device)
        lengths = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(lengths, mine, group=self.group)
        self._count(mine)
        return torch.cat(lengths).tolist()

    def _count(self, tensor: Tensor) -> None:
        self.received_bytes += (
            tensor.numel() * tensor.element_size() * (self.size - 1))


def current() -> Collectives:
    """The processes that this one works with: the one door to them.

    Nobody else builds a :class:`Collectives` on the spot, so that a stand-in
    at this place (a simulated world, a counter of bytes) is everybody's.

    Returns:
        Collectives: of the default group, or of this process alone.

    Example:
        >>> current().size
        1
    """
    return Collectives()


class _GatherWithGradient(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, comm: Collectives) -> Tensor:
        pieces = comm.gather(tensor)
        ctx.comm = comm
        ctx.start = sum(piece.shape[0] for piece in pieces[:comm.index])
        ctx.length = tensor.shape[0]
        return torch.cat(pieces)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        total = ctx.comm.sum(gradient)
        return total[ctx.start:ctx.start + ctx.length], None
