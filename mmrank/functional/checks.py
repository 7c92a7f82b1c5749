"""What is refused, with its reason: shapes, types and values of arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real

import torch
from torch import Tensor

from .differentiable import wide
from .ranking_path import compiling
from .ranks import Rows


def checked_relevance(name: str, scores: Tensor, relevance: Tensor,
                      shape: tuple[str, ...]) -> Tensor:
    """The relevance as booleans."""
    if scores.dim() != len(shape):
        raise ValueError(f'{name} must have shape ({", ".join(shape)}), but '
                         f'got {tuple(scores.shape)}')
    if not scores.is_floating_point():
        raise ValueError(f'{name} must be floating point, but got '
                         f'{scores.dtype}')
    if relevance.shape != scores.shape:
        raise ValueError(
            f'relevance must have the shape of {name}, '
            f'{tuple(scores.shape)}, but got {tuple(relevance.shape)}')
    if relevance.is_floating_point() or relevance.dtype.is_complex:
        raise ValueError('relevance must be boolean or 0/1 integers (soft '
                         f'targets have no ranks), but got {relevance.dtype}')
    if relevance.dtype != torch.bool:
        refuse_where((relevance >> 1) != 0, relevance, lambda found: (
            'relevance must be boolean or 0/1 integers, but holds others, '
            f'such as {found[0] if found else "2"}; for labels compare them '
            'with the class first'))
    return relevance.bool()


def refuse_where(wrong: Tensor, values: Tensor,
                 message: Callable[[list[int]], str]) -> None:
    """Refuse values, without waiting for a device or breaking a graph.

    On the CPU it is an error with a message that is made of the values. A
    device asserts it, and says so when it comes to it.
    """
    if compiling():
        return
    if wrong.device.type != 'cpu':
        torch._assert_async(~wrong.any(), message([]))
    elif bool(wrong.any()):
        raise ValueError(message(values[wrong].tolist()))


def checked_memory(scores: Tensor, memory_scores: Tensor | None,
                   memory_relevance: Tensor | None,
                   memory_valid: Tensor | None) -> Rows | None:
    """The remembered rows, float32 or wider."""
    if memory_scores is None and memory_relevance is None:
        return None
    if memory_scores is None or memory_relevance is None:
        raise ValueError('memory_scores and memory_relevance belong '
                         'together, but only one of them was given')
    if memory_scores.shape[1:] != scores.shape[1:]:
        raise ValueError(
            'memory_scores and scores must agree in all but their length, '
            f'but got {tuple(memory_scores.shape)} and '
            f'{tuple(scores.shape)}')
    shape = ('M', 'C')[:scores.dim()]
    relevance = checked_relevance('memory_scores', memory_scores,
                                  memory_relevance, shape)
    if len(memory_scores) == 0:
        return None
    return Rows(memory_scores.detach().to(wide(scores.dtype)), relevance,
                checked_rows('memory_valid', memory_valid, memory_scores))


def checked_rows(name: str, valid: Tensor | None,
                 scores: Tensor) -> Tensor | None:
    """The mask of rows that take part, or None for all."""
    if valid is not None and (valid.dtype != torch.bool
                              or valid.shape != scores.shape[:1]):
        raise ValueError(
            f'{name} must be boolean of shape ({len(scores)},), but got '
            f'{valid.dtype} of shape {tuple(valid.shape)}')
    return valid


def check_strength(margin: float, lambda_val: float) -> None:
    """Refuse a margin below 0 and a lambda that is not positive."""
    for name, value in (('margin', margin), ('lambda_val', lambda_val)):
        if not isinstance(value, Real):
            raise ValueError(f'{name} must be a number, but got {value!r}')
    if not 0 <= margin < math.inf:
        raise ValueError(f'margin must be finite and >= 0, but got {margin}')
    if not 0 < lambda_val < math.inf:
        raise ValueError('lambda_val must be finite and > 0, but got '
                         f'{lambda_val}')


def checked_share(map_weight: float, cross_class_weight: float) -> float:
    """The share of the mAP term."""
    for name, weight in (('map_weight', map_weight),
                         ('cross_class_weight', cross_class_weight)):
        if not 0 <= weight < math.inf:
            raise ValueError(f'{name} must be finite and >= 0, but got '
                             f'{weight}')
    total = map_weight + cross_class_weight
    if total == 0:
        raise ValueError('map_weight and cross_class_weight must not both '
                         'be 0')
    return map_weight / total
