"""Which of the two ways of counting ranks a loss takes.

The sparse way follows the relevant items: fewest operations, but sizes that
depend on the data, so the host waits for the device. The dense way has fixed
shapes: it never waits, runs inside a compiled graph and on ``meta`` tensors,
and takes a few dozen calls whatever the size. Both give the same counts.

"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor

PATHS = ('dense', 'sparse')

# scores of all lists and the memory up to which dense is faster on one thread:
# 3.7 times at 320, 1.1 to 1.8 times at 4,000, a quarter of the speed at 20,000
DENSE_UP_TO_ON_CPU = 4096
# what a score takes at the highest point, and what all may take together
BYTES_A_SCORE = 96
MOST_BYTES = 4 * 2**30


class _State:
    forced: str | None = None
    last: str | None = None


@contextmanager
def ranking_path(path: str) -> Iterator[None]:
    """Make the ranking losses take one path, whatever the rule says.

    Args:
        path (str): 'dense' or 'sparse'.

    Raises:
        ValueError: for another path.

    Example:
        >>> from mmrank.functional import blackbox_ap_loss
        >>> with ranking_path('sparse'):
        ...     loss = blackbox_ap_loss(torch.rand(9), torch.arange(9) < 2)
        >>> last_ranking_path()
        'sparse'
    """
    if path not in PATHS:
        raise ValueError(f'path must be one of {PATHS}, but got {path!r}')
    before, _State.forced = _State.forced, path
    try:
        yield
    finally:
        _State.forced = before


def last_ranking_path() -> str | None:
    """The path that the last ranking loss took; None before the first.

    A compiled loss tells nothing: its path was chosen when it was traced.
    """
    return _State.last


def compiling() -> bool:
    """Whether a graph is being traced."""
    return bool(torch._dynamo.is_compiling())


def takes_dense_path(scores: Tensor, others: int = 0,
                     together: bool = False) -> bool:
    """The choice, and the record of it.

    Off the CPU, and inside a graph, dense wherever it fits into
    ``MOST_BYTES``; on the CPU up to ``DENSE_UP_TO_ON_CPU`` scores.

    Args:
        scores (Tensor): those that are ranked.
        others (int): how many are ranked with them, such as remembered ones.
        together (bool): whether several processes rank one list. They must
            agree, whatever their own sizes: sparse unless forced.
    """
    number = scores.numel() + others
    dense = number <= DENSE_UP_TO_ON_CPU
    if scores.device.type != 'cpu' or compiling():
        dense = number * BYTES_A_SCORE <= MOST_BYTES
    if together:
        dense = False
    if _State.forced is not None:
        dense = _State.forced == 'dense'
    if not compiling():
        _State.last = 'dense' if dense else 'sparse'
    return dense


def named_range(dense: bool) -> AbstractContextManager[object]:
    """The range of a path in a profile; nothing inside a graph."""
    if compiling():
        return nullcontext()
    return torch.profiler.record_function(
        f'mmrank.ranking.{PATHS[0] if dense else PATHS[1]}')
