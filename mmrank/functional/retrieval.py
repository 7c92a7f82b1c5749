"""Figures of retrieval: how well neighbours share a query's label.

Where another search than :mod:`.neighbours` is given, such as faiss, whose
order of ties is open, queries with a tie that it may have cut are searched
again. tools/benchmarks/retrieval_metric.py compares the two.

Legend: ``Q`` queries, ``G`` gallery items, ``D`` embedding width, ``k``
neighbours; ``R`` is the number of items that are relevant to a query, itself
left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .neighbours import (
    Search,
    blocks,
    check_chunk_size,
    check_finite,
    normalised,
    queries_at_once,
    top,
)


def retrieval_metrics(
    queries: Tensor,
    query_labels: Tensor,
    gallery: Tensor | None = None,
    gallery_labels: Tensor | None = None,
    *,
    ks: Sequence[int] = (1, ),
    chunk_size: int | None = None,
    with_map: bool = True,
    index: Callable[[Tensor], Search] | None = None,
) -> dict[str, float]:
    r"""How well the nearest neighbours of the queries share their label.

    With ``rel(i)`` saying whether the i-th neighbour is relevant and
    ``P(i)`` the relevant share of the first ``i``, the mean over queries of

    - ``R@K``: 1 if one of the K nearest is relevant, else 0;
    - ``R-precision``: ``P(R)``;
    - ``MAP@R``: :math:`\frac1R \sum_{i \le R} P(i)\, rel(i)`;
    - ``mAP``: :math:`\frac1R \sum_{i \le G} P(i)\, rel(i)`, the finite-sum
      average precision over the whole gallery.

    Neighbours are ordered by cosine similarity. Without a gallery the
    queries are each other's gallery, and a query is left out of its own
    neighbours by its index, not by its distance, so a duplicate of it counts
    as any other item. Ties are pessimistic: an irrelevant item whose
    similarity is within two machine epsilons of a relevant one's comes
    before it. The result therefore does not depend on the items' order.

    Args:
        queries (Tensor): shape (Q, D), floating point, finite. Half
            precision is lifted to float32.
        query_labels (Tensor): shape (Q,), integers.
        gallery (Tensor, optional): shape (G, D).
        gallery_labels (Tensor, optional): shape (G,).
        ks (Sequence[int]): the K of ``R@K``, each at least 1; larger than
            the gallery is allowed and means the whole of it.
        chunk_size (int, optional): queries compared at once. None bounds
            a block, with its temporaries, to 256 MiB.
        with_map (bool): compute ``mAP``, which sorts the whole gallery for
            every query. The others need only ``max R`` neighbours.
        index (Callable, optional): makes of the gallery, normalised, a
            function that finds the ``k`` most similar items of normalised
            queries, by inner product: two tensors (Q, k), similarities and
            int64 indices, in the dtype and on the device of the gallery.
            :func:`mmrank.evaluation.faiss_index` is one. The figures do not
            depend on it. ``with_map`` needs whole rankings, and no index.

    Returns:
        dict[str, float]: the figures as fractions, and ``num_queries`` and
        ``num_skipped``: queries without a relevant item are left out. When
        none is left, the figures are NaN.

    Raises:
        ValueError: on shapes that do not fit, labels of a floating type,
            embeddings that are not finite, a ``ks`` or ``chunk_size`` below
            1, or an ``index`` together with ``with_map``.

    Time O(Q G D); memory: the normalised copies and one block.

    Source: Musgrave et al., A Metric Learning Reality Check, section 3.2.

    >>> import torch
    >>> x = torch.tensor([[1., 0.], [1., .1], [0., 1.], [1., .2]])
    >>> found = retrieval_metrics(x, torch.tensor([0, 0, 1, 1]))
    >>> found['R@1'], found['num_queries']
    (0.5, 4)
    """
    _check(queries, query_labels, 'queries')
    if (gallery is None) != (gallery_labels is None):
        raise ValueError('gallery and gallery_labels belong together: give '
                         'both or neither')
    if any(k < 1 or k != int(k) for k in ks):
        raise ValueError('each K of R@K must be an integer of at least 1, '
                         f'but ks={ks}')
    check_chunk_size(chunk_size)
    if index is not None and with_map:
        raise ValueError('mAP needs the whole ranking, which an index does '
                         'not give: set with_map=False, or leave out index')
    ks = sorted({int(k) for k in ks})
    query_labels = query_labels.long()
    itself = gallery is None
    queries = normalised(queries)
    if gallery is None or gallery_labels is None:
        gallery, gallery_labels = queries, query_labels
    else:
        _check(gallery, gallery_labels, 'gallery')
        gallery = normalised(gallery).to(queries)
        gallery_labels = gallery_labels.to(query_labels)
    if gallery.shape[1] != queries.shape[1]:
        raise ValueError(
            f'queries are {queries.shape[1]} wide but the gallery '
            f'{gallery.shape[1]}')

    relevant = _Relevant(query_labels, gallery_labels, itself)
    kept = relevant.counts.nonzero()[:, 0]
    names = [f'R@{k}' for k in ks] + ['R-precision', 'MAP@R']
    names += ['mAP'] if with_map else []
    if len(kept) > 0:
        figures = _Figures(queries, gallery, query_labels, gallery_labels,
                           relevant, ks, with_map)
        sums, left = figures.nothing(), kept
        if index is not None:
            sums, left = figures.by_index(kept, index(gallery))
        sums += figures.by_products(left, chunk_size)
        values = (sums / len(kept)).tolist()
    else:
        values = [math.nan] * len(names)
    found = dict(zip(names, values))
    found['num_queries'] = len(kept)
    found['num_skipped'] = queries.shape[0] - len(kept)
    return found


class _Relevant:
    """For every query the gallery items of its label, itself left out."""

    def __init__(self, query_labels: Tensor, gallery_labels: Tensor,
                 itself: bool) -> None:
        ordered, self.order = gallery_labels.sort(stable=True)
        self.first = torch.searchsorted(ordered, query_labels)
        self.sizes = torch.searchsorted(
            ordered, query_labels, right=True) - self.first
        self.itself = itself
        self.counts = self.sizes - int(itself)

    def pairs(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Places in a block of ``rows``: of itself too, if it is there."""
        sizes = self.sizes[rows]
        row = torch.arange(
            len(rows), device=rows.device).repeat_interleave(sizes)
        start = (self.first[rows] - sizes.cumsum(0) + sizes)[row]
        return row, self.order[start + torch.arange(
            len(row), device=rows.device)]


class _Figures:
    """Sums over queries of every figure, in order, by either search.

    The R@K, R-precision, MAP@R and, ``with_map``, mAP.
    """

    def __init__(self, queries: Tensor, gallery: Tensor, query_labels: Tensor,
                 gallery_labels: Tensor, relevant: _Relevant,
                 ks: Sequence[int], with_map: bool) -> None:
        self.queries, self.gallery = queries, gallery
        self.query_labels = query_labels
        self.gallery_labels = gallery_labels
        self.relevant = relevant
        self.ks, self.with_map = ks, with_map
        self.deepest = max(ks, default=1)
        self.most = int(relevant.counts.max())
        # lowered a little, a relevant item stands behind those it ties with
        self.tie = 2 * torch.finfo(gallery.dtype).eps

    def by_products(self, queries: Tensor, chunk_size: int | None) -> Tensor:
        """By matrix products, ``chunk_size`` of the ``queries`` at once."""
        total = self.gallery.shape[0]
        depth = total if self.with_map else self.most
        size = chunk_size or queries_at_once(total, depth,
                                             self.gallery.element_size())
        sums = self.nothing()
        for rows in blocks(queries, size):
            sums += self._sums(rows, *self._multiply(rows, depth))
        return sums

    def by_index(self, queries: Tensor,
                 search: Search) -> tuple[Tensor, Tensor]:
        """With the queries of which a tie may have been cut off."""
        total, depth = self.gallery.shape[0], max(self.most, self.deepest)
        # the query itself, and one more to see whether ties go on
        searched = min(total, depth + 2)
        sums = self.nothing()
        unsure = [queries[:0]]
        for rows in blocks(queries, 4096):
            values, nearest = search(self.queries[rows], searched)
            hits = self._are_hits(rows, nearest)
            lowered = values - self.tie * hits
            if self.relevant.itself:
                itself = nearest == rows[:, None]
                lowered[itself], hits[itself] = -math.inf, False
            lowered, order = lowered.sort(dim=1, descending=True, stable=True)
            hits = hits.gather(1, order)[:, :depth]
            cut = (hits & (lowered[:, :depth] <= values[:, -1:])).any(1)
            cut &= searched < total
            sums += self._sums(rows[~cut], _first_hit(hits)[~cut], hits[~cut])
            unsure.append(rows[cut])
        return sums, torch.cat(unsure)

    def _multiply(self, rows: Tensor, depth: int) -> tuple[Tensor, Tensor]:
        """The rank of the first hit, and the hits, shape (rows, depth)."""
        similarity = self.queries[rows] @ self.gallery.T
        row, item = self.relevant.pairs(rows)
        similarity[row, item] -= self.tie
        if self.relevant.itself:
            similarity[torch.arange(len(rows), device=rows.device), rows] = \
                -math.inf
        _, nearest = top(similarity, depth)
        hits = self._are_hits(rows, nearest)
        if self.relevant.itself and depth == similarity.shape[1]:
            hits[:, -1] = False  # the query itself, at minus infinity
        return _first_rank(similarity, hits, row, item, self.deepest), hits

    def nothing(self) -> Tensor:
        """The sums over no queries."""
        return torch.zeros(len(self.ks) + 2 + self.with_map,
                           dtype=torch.float64)

    def _are_hits(self, rows: Tensor, nearest: Tensor) -> Tensor:
        return self.gallery_labels[nearest] == self.query_labels[rows, None]

    def _sums(self, rows: Tensor, first: Tensor, hits: Tensor) -> Tensor:
        counts = self.relevant.counts[rows].double()
        position = torch.arange(1, hits.shape[1] + 1, device=hits.device)
        gain = hits * (hits.cumsum(1) / position).double()
        within = position <= counts[:, None]
        sums = [(first <= k).sum().double() for k in self.ks]
        sums.append(((hits & within).sum(1) / counts).sum())
        sums.append(((gain * within).sum(1) / counts).sum())
        if self.with_map:
            sums.append((gain.sum(1) / counts).sum())
        return torch.stack(sums).cpu()


def _first_hit(hits: Tensor) -> Tensor:
    far = hits.shape[1] + 1
    return torch.where(hits.any(1), hits.int().argmax(1) + 1, far)


def _first_rank(similarity: Tensor, hits: Tensor, row: Tensor, item: Tensor,
                deepest: int) -> Tensor:
    """Rank of each row's first relevant item, as far as ``deepest``.

    The searched neighbours know it when they reach that far; otherwise it is
    counted, which is cheaper than a deeper search.
    """
    if deepest <= hits.shape[1]:
        return _first_hit(hits)
    best = similarity.new_full((len(similarity), ), -math.inf)
    best.scatter_reduce_(0, row, similarity[row, item], 'amax')
    return (similarity > best[:, None]).sum(1) + 1


def _check(embeddings: Tensor, labels: Tensor, name: str) -> None:
    if embeddings.dim() != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f'{name} must be (N, D) with labels (N,), but have shapes '
            f'{tuple(embeddings.shape)} and {tuple(labels.shape)}')
    if not embeddings.is_floating_point() or labels.is_floating_point():
        raise ValueError(f'{name} need floating embeddings and integer '
                         f'labels, not {embeddings.dtype}, {labels.dtype}')
    check_finite(embeddings, name)
