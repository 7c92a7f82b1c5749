"""Exact nearest neighbours in blocks, and the figures computed from them.

The search is a matrix product and a selection in two steps; it needs no
library of its own. Where another search is given, such as faiss, whose order
of ties is open, queries with a tie that it may have cut are searched again.
tools/benchmarks/retrieval_metric.py compares the two.

Legend: ``Q`` queries, ``G`` gallery items, ``D`` embedding width, ``N``
ranked items, ``k`` neighbours; ``R`` is the number of items that are relevant
to a query, itself left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

# (queries, k) to cosine similarities and indices, (Q, k), most similar first
Search = Callable[[Tensor, int], tuple[Tensor, Tensor]]

# One block of similarities, with what is derived from it, stays below this.
_BLOCK_BYTES = 256 * 2**20
# Neighbours are searched in groups of this many gallery items first.
_GROUP = 64


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
    _check_chunk_size(chunk_size)
    if index is not None and with_map:
        raise ValueError('mAP needs the whole ranking, which an index does '
                         'not give: set with_map=False, or leave out index')
    ks = sorted({int(k) for k in ks})
    query_labels = query_labels.long()
    itself = gallery is None
    queries = _normalised(queries)
    if gallery is None or gallery_labels is None:
        gallery, gallery_labels = queries, query_labels
    else:
        _check(gallery, gallery_labels, 'gallery')
        gallery = _normalised(gallery).to(queries)
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
        chunk_size (int, optional): as in :func:`retrieval_metrics`.

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
    _check_chunk_size(chunk_size)
    if gallery is not None and gallery.shape[1] != queries.shape[1]:
        raise ValueError(f'queries are {queries.shape[1]} wide but the '
                         f'gallery {gallery.shape[1]}')
    itself = gallery is None
    _check_finite(queries, 'queries')
    if gallery is not None:
        _check_finite(gallery, 'gallery')
    queries = _normalised(queries)
    gallery = queries if gallery is None else \
        _normalised(gallery).to(queries)
    k = min(k, gallery.shape[0] - int(itself))
    size = chunk_size or _chunk_size(gallery.shape[0], k,
                                     gallery.element_size())
    values = queries.new_empty((queries.shape[0], max(k, 0)))
    indices = torch.empty_like(values, dtype=torch.long)
    if k < 1:
        return values, indices
    everyone = torch.arange(queries.shape[0], device=queries.device)
    for rows in _blocks(everyone, size):
        similarity = queries[rows] @ gallery.T
        if itself:
            similarity[torch.arange(len(rows)), rows] = -math.inf
        values[rows], indices[rows] = _top(similarity, k)
    return values, indices


def average_precision(scores: Tensor,
                      relevance: Tensor,
                      *,
                      convention: str = 'finite') -> Tensor:
    """Average precision of rankings by score, highest first.

    Three conventions that users meet; the same ranking gives each its own
    number:

    - ``'finite'``: the mean over relevant items of the precision at their
      rank; tied irrelevant items come first;
    - ``'trapezoid'``: the area under the precision-recall curve, joined by
      straight lines from precision 1 at recall 0; the same rule for ties;
    - ``'threshold'``: as ``'finite'``, but items of equal score enter
      together (what scikit-learn computes).

    None depends on the order in which equal scores are listed.

    Args:
        scores (Tensor): shape (..., N).
        relevance (Tensor): bool or 0/1, shape (..., N).
        convention (str): one of the above.

    Returns:
        Tensor: shape (...), float64; NaN where nothing is relevant.

    Raises:
        ValueError: on an unknown convention, unequal shapes, or a score
            that is NaN.

    >>> import torch
    >>> scores, relevance = torch.tensor([4., 3, 2, 1]), torch.tensor([1, 0, 1, 0])
    >>> [round(float(average_precision(scores, relevance, convention=c)), 6)
    ...  for c in ('finite', 'trapezoid', 'threshold')]
    [0.833333, 0.791667, 0.833333]
    """  # noqa: E501
    if scores.shape != relevance.shape:
        raise ValueError(f'scores have shape {tuple(scores.shape)} but '
                         f'relevance {tuple(relevance.shape)}')
    if convention not in ('finite', 'trapezoid', 'threshold'):
        raise ValueError(f'convention must be finite, trapezoid or '
                         f'threshold, but got {convention!r}')
    if scores.isnan().any():
        raise ValueError('a score is NaN, which has no place in a ranking')
    relevance = relevance.bool()
    # irrelevant first, then a stable sort: the pessimistic order of ties
    order = relevance.to(torch.uint8).argsort(
        dim=-1, stable=True)
    scores, relevance = scores.gather(-1, order), relevance.gather(-1, order)
    scores, order = scores.sort(dim=-1, descending=True, stable=True)
    hits = relevance.gather(-1, order).double()
    found = hits.cumsum(-1)
    rank = torch.arange(
        1, scores.shape[-1] + 1, device=scores.device).double()
    precision = found / rank
    if convention == 'threshold':
        last = torch.searchsorted(
            -scores.contiguous(), -scores.contiguous(), right=True)
        precision = precision.gather(-1, last - 1)
    elif convention == 'trapezoid':
        before = F.pad(precision[..., :-1], (1, 0), value=1.0)
        precision = (precision + before) / 2
    return (precision * hits).sum(-1) / hits.sum(-1)


def fpr_at_recall(distances: Tensor,
                  matches: Tensor,
                  recall: float = 0.95) -> Tensor:
    """False positive rate at the distance that accepts a share of matches.

    The threshold is the smallest distance at which at least ``recall`` of
    the matching pairs are accepted; the result is the share of the
    non-matching pairs at or below it, so ties count against.

    Args:
        distances (Tensor): shape (N,), smaller is more similar, no NaN.
        matches (Tensor): bool or 0/1, shape (N,).
        recall (float): in (0, 1].

    Returns:
        Tensor: a float64 scalar in [0, 1].

    Raises:
        ValueError: if there is no matching or no non-matching pair, a
            distance is NaN, or ``recall`` is out of range.

    >>> import torch
    >>> float(fpr_at_recall(torch.tensor([.1, .2, .3, .4]),
    ...                     torch.tensor([1, 0, 1, 0])))
    0.5
    """
    if not 0 < recall <= 1:
        raise ValueError(f'recall must be in (0, 1], but got {recall}')
    if distances.shape != matches.shape or distances.dim() != 1:
        raise ValueError(
            f'distances and matches must be vectors of one length, but have '
            f'shapes {tuple(distances.shape)} and {tuple(matches.shape)}')
    if distances.isnan().any():
        raise ValueError('a distance is NaN; the descriptors are not finite')
    matches = matches.bool()
    positive, negative = distances[matches], distances[~matches]
    if len(positive) == 0 or len(negative) == 0:
        raise ValueError(
            f'the false positive rate needs matching and non-matching pairs, '
            f'but there are {len(positive)} and {len(negative)}')
    # the small term undoes rounding: 0.95 * 20 is 19 and not 19.000000001
    accepted = math.ceil(recall * len(positive) - 1e-9)
    threshold = positive.kthvalue(max(accepted, 1)).values
    return (negative <= threshold).double().mean()


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
        size = chunk_size or _chunk_size(total, depth,
                                         self.gallery.element_size())
        sums = self.nothing()
        for rows in _blocks(queries, size):
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
        for rows in _blocks(queries, 4096):
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
        _, nearest = _top(similarity, depth)
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


def _top(similarity: Tensor, k: int) -> tuple[Tensor, Tensor]:
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


def _normalised(embeddings: Tensor) -> Tensor:
    lifted = embeddings.detach()
    if lifted.dtype != torch.float64:
        lifted = lifted.float()
    lengths = torch.linalg.vector_norm(lifted, dim=1)
    # where squares overflow or vanish, the row is brought near 1 first
    if bool(((lengths < 1e-9) | lengths.isinf()).any()):
        lifted = lifted / lifted.abs().amax(
            1, keepdim=True).clamp(min=torch.finfo(lifted.dtype).tiny)
    return F.normalize(lifted, dim=1)


def _check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(
            f'chunk_size must be at least 1, or None, but got {chunk_size}')


def _chunk_size(gallery: int, depth: int, width: int) -> int:
    # similarities; a comparison of them; neighbours, as values, as indices
    # and in the running sums
    row = gallery * (width + 1) + depth * (width + 40)
    return max(1, min(4096, _BLOCK_BYTES // max(row, 1)))


def _check(embeddings: Tensor, labels: Tensor, name: str) -> None:
    if embeddings.dim() != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f'{name} must be (N, D) with labels (N,), but have shapes '
            f'{tuple(embeddings.shape)} and {tuple(labels.shape)}')
    if not embeddings.is_floating_point() or labels.is_floating_point():
        raise ValueError(f'{name} need floating embeddings and integer '
                         f'labels, not {embeddings.dtype}, {labels.dtype}')
    _check_finite(embeddings, name)


def _check_finite(embeddings: Tensor, name: str) -> None:
    for block in _blocks(embeddings, 8192):
        if not block.isfinite().all():
            raise ValueError(f'{name} hold an embedding that is not finite; '
                             'look for a diverged training')


def _blocks(tensor: Tensor, size: int) -> Iterator[Tensor]:
    for start in range(0, tensor.shape[0], size):
        yield tensor[start:start + size]
