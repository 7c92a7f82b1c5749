"""Which rows and columns of a classifier's scores a ranking loss ranks."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from mmrank.state import Collectives


class RankedRows(NamedTuple):
    """The samples that a call ranks.

    Attributes:
        scores (Tensor): (N, C), of the classes, float32 or wider.
        label (Tensor): (N,), C for the background, -1 for a masked row.
        quality (Tensor, optional): (N,), of a quality-aware head.
    """

    scores: Tensor
    label: Tensor
    quality: Tensor | None


def foreground(cls_score: Tensor, num_classes: int | None,
               use_sigmoid: bool) -> Tensor:
    """The columns of the classes, without one for the background.

    Args:
        cls_score (Tensor): (..., C) or (..., C + 1).
        num_classes (int, optional): ``C``, where it is known.
        use_sigmoid (bool): where it is not, whether all columns are classes.

    Raises:
        ValueError: if the number of columns fits neither convention.
    """
    columns = cls_score.shape[-1]
    if num_classes is None:
        classes = columns if use_sigmoid else columns - 1
    elif columns in (num_classes, num_classes + 1):
        classes = num_classes
    else:
        raise ValueError(
            f'cls_score must have {num_classes} columns, or one more for the '
            f'background, but got {columns}')
    if classes < 1:
        raise ValueError('cls_score has no column of a class, its shape is '
                         f'{tuple(cls_score.shape)}')
    return cls_score if classes == columns else cls_score[..., :classes]


def ranked_rows(scores: Tensor, target: Any, weight: Tensor | None,
                masks: bool) -> RankedRows:
    """The rows that take part, or all of them with the others masked.

    Args:
        scores (Tensor): (N, C), of the classes.
        target (Tensor | tuple): labels (N,), or labels and quality.
        weight (Tensor, optional): (N,); 0: the row takes no part.
        masks (bool): rows that take no part stay, with the label -1.

    Raises:
        ValueError: for labels that are no class numbers, and for shapes that
            do not fit.
    """
    label, quality = target, None
    if isinstance(target, (tuple, list)) and len(target) == 2:
        label, quality = target
    _check(scores, label, dict(weight=weight, quality=quality))
    keep = label >= 0
    if weight is not None:
        keep = keep & (weight > 0)
    if masks:
        label = label.masked_fill(~keep, -1)
    elif not bool(keep.all()):
        scores, label = scores[keep], label[keep]
        quality = None if quality is None else quality[keep]
    return RankedRows(
        scores.to(torch.promote_types(scores.dtype, torch.float32)), label,
        quality)


def joined_rows(rows: RankedRows, comm: Collectives) -> RankedRows:
    """The rows of all processes in process order, on each of them.

    As every process computes the same loss of them, it has the gradient of
    its own rows without a message in the backward pass, where the order of
    messages would hang on the graph. It counts ``W`` times: the mean over
    processes, which DDP takes, is then the gradient of that loss.
    """
    pieces = comm.gather(rows.scores)
    own = rows.scores.view_as(rows.scores)
    if own.requires_grad:
        own.register_hook(lambda gradient: gradient * comm.size)
    pieces[comm.index] = own
    label = torch.cat(comm.gather(rows.label))
    quality = None if rows.quality is None else torch.cat(
        comm.gather(rows.quality))
    return RankedRows(torch.cat(pieces), label, quality)


def one_hot(label: Tensor, num_classes: int) -> Tensor:
    """Relevance (N, C), bool, of labels (N,); False for other labels."""
    classes = torch.arange(num_classes, device=label.device)
    return label[:, None] == classes


def _check(scores: Tensor, label: Any,
           beside: dict[str, Tensor | None]) -> None:
    if not isinstance(label, Tensor) or label.dim() != 1 \
            or label.is_floating_point():
        kind = (f'shape {tuple(label.shape)}, {label.dtype}'
                if isinstance(label, Tensor) else type(label).__name__)
        raise ValueError(
            'a ranking loss takes one integer label a sample, shape (N,), '
            f'alone or with a quality (N,), but got {kind}; soft or '
            'multi-label targets are not ranked')
    if scores.dim() != 2 or len(scores) != len(label):
        raise ValueError(
            'cls_score must have shape (N, C) with N labels, but got '
            f'{tuple(scores.shape)} and {len(label)} labels')
    for name, value in beside.items():
        if value is not None and value.shape != label.shape:
            raise ValueError(
                f'{name} must have the shape of label, '
                f'{tuple(label.shape)}, but got {tuple(value.shape)}')
    if bool((label > scores.shape[1]).any()):
        raise ValueError(
            f'labels must be at most {scores.shape[1]}, the background, '
            f'for {scores.shape[1]} classes, but got {int(label.max())}; '
            "check the head's and the data set's number of classes")
