"""Arithmetic in float32 or wider, and gradients that come with the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# values (the first one is differentiated), and its gradient
Measured = tuple[list[Tensor], Tensor]


def lifted(tensor: Tensor) -> Tensor:
    """The tensor in float32, or in float64 if it is."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class _StoredGradient(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, scores: Tensor,
                measure: Callable[[Tensor], Measured]
                ) -> tuple[Tensor, ...]:
        values, gradient = measure(scores.detach())
        ctx.save_for_backward(gradient)
        values = [value.to(scores.dtype) for value in values]
        ctx.mark_non_differentiable(*values[1:])
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor,
                 *_: Tensor) -> tuple[Tensor, None]:
        gradient, = ctx.saved_tensors
        return gradient * incoming, None


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
    return _StoredGradient.apply(lifted(scores), measure)  # type: ignore
