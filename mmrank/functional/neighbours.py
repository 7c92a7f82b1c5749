"""The exact search for nearest neighbours, in blocks.

A matrix product and a selection in two steps; it needs no library of its own.

Legend: ``Q`` queries, ``G`` gallery items, ``D`` embedding width, ``k``
neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from .differentiable import lifted

# (queries, k) to cosine similarities and indices, (Q, k), most similar first
Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]

# One block of similarities, with what is derived from it, stays below this.
_BLOCK_BYTES = 256 * 2**20
# Neighbours are searched in groups of this many gallery items first.
_GROUP = 64


def nearest_neighbours(queries: Tensor,
                       gallery: Tensor | None = None,
                       *,
                       k: int,
                       chunk_size: int | None = None
                       ) -> tuple[Tensor, Tensor]:
    """The ``k`` most similar gallery items of every query, exactly.

    Args:
        queries (Tensor): shape (Q, D).
        gallery (Tensor, optional): shape (G, D). None compares the queries
            with each other and leaves each out of its own list by index.
        k (int): at least 1; cut to the number of items there are.
        chunk_size (int, optional): queries compared at once. None bounds
            a block, with its temporaries, to 256 MiB.

    Returns:
        tuple[Tensor, Tensor]: cosine similarities and int64 indices, both of
        shape (Q, k), most similar first.

    Raises:
        ValueError: on ``k`` or ``chunk_size`` below 1, on two widths, or on
            an embedding that is not finite, which would come first.

    >>> import torch
    >>> x = torch.tensor([[1., 0.], [0., 1.], [1., .1]])
    >>> nearest_neighbours(x, k=1)[1].flatten().tolist()
    [2, 2, 0]
    """
    if k < 1:
        raise ValueError(f'k must be at least 1, but got {k}')
    check_chunk_size(chunk_size)
    if gallery is not None and gallery.shape[1] != queries.shape[1]:
        raise ValueError(f'queries are {queries.shape[1]} wide but the '
                         f'gallery {gallery.shape[1]}')
    itself = gallery is None
    check_finite(queries, 'queries')
    if gallery is not None:
        check_finite(gallery, 'gallery')
    queries = normalised(queries)
    gallery = queries if gallery is None else \
        normalised(gallery).to(queries)
    k = min(k, gallery.shape[0] - int(itself))
    size = chunk_size or queries_at_once(gallery.shape[0], k,
                                         gallery.element_size())
    values = queries.new_empty((queries.shape[0], max(k, 0)))
    indices = torch.empty_like(values, dtype=torch.long)
    if k < 1:
        return values, indices
    everyone = torch.arange(queries.shape[0], device=queries.device)
    for rows in blocks(everyone, size):
        similarity = queries[rows] @ gallery.T
        if itself:
            similarity[torch.arange(len(rows)), rows] = -math.inf
        values[rows], indices[rows] = top(similarity, k)
    return values, indices


def top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """``similarity.topk(k)``; faster for a long row and a small ``k``.

    The ``k`` largest lie in the ``k`` groups with the largest maxima. A pass
    for the maxima is vectorised, unlike the selection over a whole row.
    """
    total = similarity.shape[1]
    groups = total // _GROUP
    if similarity.is_cuda or k * 8 > groups:
        return similarity.topk(k, dim=1)
    whole = groups * _GROUP
    folded = similarity[:, :whole].view(-1, groups, _GROUP)
    best = folded.amax(2).topk(k, dim=1, sorted=False).indices
    places = (best[:, :, None] * _GROUP + torch.arange(
        _GROUP, device=best.device)).flatten(1)
    rest = torch.arange(whole, total, device=best.device)
    places = torch.cat([places, rest.expand(len(places), -1)], 1)
    values, index = similarity.gather(1, places).topk(k, dim=1)
    return values, places.gather(1, index)


def normalised(embeddings: Tensor) -> Tensor:
    """Rows of length 1, float32 or wider; a row of zeros stays."""
    rows = lifted(embeddings.detach())
    lengths = torch.linalg.vector_norm(rows, dim=1)
    # where squares overflow or vanish, the row is brought near 1 first
    if bool(((lengths < 1e-9) | lengths.isinf()).any()):
        rows = rows / rows.abs().amax(
            1, keepdim=True).clamp(min=torch.finfo(rows.dtype).tiny)
    return F.normalize(rows, dim=1)


def check_finite(embeddings: Tensor, name: str) -> None:
    """Refuse embeddings that are not finite: they would come first."""
    for block in blocks(embeddings, 8192):
        if not block.isfinite().all():
            raise ValueError(f'{name} hold an embedding that is not finite; '
                             'look for a diverged training')


def check_chunk_size(chunk_size: int | None) -> None:
    """Refuse fewer than one query at once."""
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(
            f'chunk_size must be at least 1, or None, but got {chunk_size}')


def queries_at_once(gallery: int, depth: int, width: int) -> int:
    """Queries whose similarities and ``depth`` neighbours fit a block."""
    # similarities; a comparison of them; neighbours, as values, as indices
    # and in the running sums
    row = gallery * (width + 1) + depth * (width + 40)
    return max(1, min(4096, _BLOCK_BYTES // max(row, 1)))


def blocks(tensor: Tensor, size: int) -> Iterator[Tensor]:
    """The tensor in pieces of ``size`` rows."""
    for start in range(0, tensor.shape[0], size):
        yield tensor[start:start + size]
