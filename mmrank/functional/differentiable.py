"""Arithmetic in float32 or wider, and gradients that come with the value."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# values (the first one is differentiated), and its gradient
Measured = tuple[list[Tensor], Tensor]


def wide(dtype: torch.dtype) -> torch.dtype:
    """float64 for float64, otherwise float32; a graph can trace it."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def lifted(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is."""
    return tensor.to(wide(tensor.dtype))


def full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """No autocast on the device of a tensor; ``meta`` knows none."""
    kind = tensor.device.type
    return nullcontext() if kind == 'meta' else torch.autocast(
        kind, enabled=False)


class _StoredGradient(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor,
                gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return value.to(scores.dtype, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None]:
        gradient, = ctx.saved_tensors
        return gradient * incoming, None, None


def differentiable(scores: Tensor, measure: Callable[[Tensor], Measured]
                   ) -> tuple[Tensor, ...]:
    """Values whose gradient is computed with them, in the forward pass.

    Args:
        scores (Tensor): any shape, floating point; lifted to float32.
        measure (Callable): makes of the lifted scores, detached, a list of
            scalars and the gradient of the first one, shaped as the scores.

    Returns:
        tuple[Tensor, ...]: the scalars, in the lifted scores' dtype. The
        first one is attached to the graph; its backward pass multiplies the
        stored gradient by the incoming one.
    """
    scores = lifted(scores)
    with torch.no_grad():
        values, gradient = measure(scores.detach())
    loss = _StoredGradient.apply(scores, values[0], gradient)  # type: ignore
    return loss, *(value.to(scores.dtype) for value in values[1:])
