"""Search a gallery of embeddings by cosine similarity, exactly."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrank.files import read_archive, write_archive
from mmrank.functional import Search, nearest_neighbours
from mmrank.optional import need

from .search_result import SearchResult

FORMAT = 'mmrank-gallery'
VERSION = 1

# how far float32 products of unit vectors may lie from the exact ones
_ROUNDING = 1e-5
# queries searched at once; the searches themselves work in blocks as well
_QUERY_BLOCK = 4096


class GallerySearch:
    """A gallery of embeddings that can be searched, saved and loaded.

    The search is exact: cosine similarity with every gallery item, and of
    items that are equally similar the earlier one first. faiss, where it is
    installed, only proposes candidates faster; both backends return the same
    items in the same order.

    Args:
        embeddings (np.ndarray | Tensor): (G, D), finite; need not be
            normalised. An all-zero embedding has similarity 0 with all.
        labels (sequence of int, optional): the class of each item.
        paths (sequence of str, optional): the file of each item.
        classes (sequence of str, optional): class names, indexed by label.
        model_id (str): which model made the embeddings
            (:attr:`EmbeddingExtractor.model_id`); '' if unknown.
        backend (str): 'faiss', 'torch', or 'auto' for faiss if installed.

    Raises:
        ValueError: for embeddings of another shape or not finite, for labels
            or paths of another length, for a label without a class name.
        ImportError: for backend 'faiss' where faiss is not installed.

    Example:
        >>> gallery = GallerySearch([[1., 0.], [0., 1.], [1., 1.]],
        ...                         labels=[4, 5, 4], backend='torch')
        >>> result = gallery.query([[2., 0.]], k=2)
        >>> result.indices.tolist(), result.labels.tolist()
        ([[0, 2]], [[4, 4]])
    """

    def __init__(self,
                 embeddings: Any,
                 labels: Sequence[int] | np.ndarray | None = None,
                 paths: Sequence[str] | None = None,
                 *,
                 classes: Sequence[str] | None = None,
                 model_id: str = '',
                 backend: str = 'auto') -> None:
        self.embeddings = _unit_rows(_as_matrix(embeddings, 'embeddings'))
        size = len(self.embeddings)
        self.labels = _as_labels(labels, size)
        self.paths = _as_paths(paths, size)
        self.classes = _as_classes(classes, self.labels)
        self.model_id = model_id
        self.backend = _choose_backend(backend)
        self._search: Search | None = None

    def __len__(self) -> int:
        """Number of gallery items G."""
        return len(self.embeddings)

    @property
    def embedding_dim(self) -> int:
        """Width D of the embeddings."""
        return self.embeddings.shape[1]

    @classmethod
    def build(cls, embeddings: Any, labels: Sequence[int] | None = None,
              paths: Sequence[str] | None = None,
              **kwargs: Any) -> GallerySearch:
        """The gallery of these embeddings; the arguments of the class."""
        return cls(embeddings, labels, paths, **kwargs)

    def query(self, embeddings: Any, k: int = 10) -> SearchResult:
        """The ``k`` gallery items most similar to each query.

        Args:
            embeddings (np.ndarray | Tensor): (Q, D), or (D,) for one query;
                Q may be 0.
            k (int): how many; a gallery of fewer items gives all of them, so
                the results have ``min(k, G)`` columns.

        Returns:
            SearchResult: best first; its arrays have no row for no query and
            no column for an empty gallery.

        Raises:
            ValueError: if ``k`` < 1, if D is not the gallery's, or if a
                query is not finite.
        """
        if not isinstance(k, (int, np.integer)) or k < 1:
            raise ValueError(f'k must be an integer >= 1, but got {k!r}')
        queries = _as_matrix(embeddings, 'query embeddings')
        self.check(queries.shape[1])
        queries = _unit_rows(queries)
        k = min(int(k), len(self))
        scores = np.zeros((len(queries), k), np.float32)
        indices = np.zeros((len(queries), k), np.int64)
        if k > 0:
            for start in range(0, len(queries), _QUERY_BLOCK):
                rows = slice(start, start + _QUERY_BLOCK)
                scores[rows], indices[rows] = self._nearest(queries[rows], k)
        return self._describe(scores, indices)

    def check(self, embedding_dim: int, model_id: str = '') -> None:
        """Refuse a model whose embeddings cannot be compared with ours.

        Args:
            embedding_dim (int): the model's width D.
            model_id (str): the model's :attr:`EmbeddingExtractor.model_id`;
                compared where both are known.

        Raises:
            ValueError: if they differ from those of the gallery.
        """
        if embedding_dim != self.embedding_dim:
            raise ValueError(
                f'the gallery holds embeddings of {self.embedding_dim} '
                f'dimensions, but the queries have {embedding_dim}: build '
                'the gallery again with the model that embeds the queries')
        if model_id and self.model_id and model_id != self.model_id:
            raise ValueError(
                f'the gallery was made by model {self.model_id}, but the '
                f'queries by {model_id}: embeddings of two models cannot be '
                'compared; build the gallery again, or use its checkpoint')

    def save(self, file: str | os.PathLike) -> None:
        """Write the gallery to one file; an existing one is replaced whole.

        The file is a numpy archive of plain arrays and one JSON text, read
        without pickle. It is written beside the target and then renamed, so
        nobody ever sees a half-written gallery.

        Args:
            file (path): where to; the folder is created if missing. The name
                is kept as it is.
        """
        meta = {
            'format': FORMAT,
            'version': VERSION,
            'size': len(self),
            'embedding_dim': self.embedding_dim,
            'model_id': self.model_id,
            'classes': self.classes,
            'paths': self.paths}
        text = json.dumps(meta, ensure_ascii=False)
        arrays = {
            'meta': np.frombuffer(text.encode(), np.uint8),
            'embeddings': self.embeddings}
        if self.labels is not None:
            arrays['labels'] = self.labels
        write_archive(file, arrays)

    @classmethod
    def load(cls,
             file: str | os.PathLike,
             *,
             embedding_dim: int | None = None,
             model_id: str = '',
             **kwargs: Any) -> GallerySearch:
        """Read a saved gallery.

        Args:
            file (path): written by :meth:`save`.
            embedding_dim (int, optional): width of the model that will embed
                the queries, checked at once.
            model_id (str): its identity, checked at once.
            kwargs: ``backend``, as for the class.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is damaged, no gallery, of another version, or
                made by another model.
        """
        arrays = read_archive(file, 'gallery')
        meta = _read_meta(arrays, file)
        gallery = cls(
            arrays['embeddings'],
            arrays.get('labels'),
            meta['paths'],
            classes=meta['classes'],
            model_id=meta['model_id'],
            **kwargs)
        # unit rows already: normalising again would turn their last digits
        gallery.embeddings = arrays['embeddings']
        if len(gallery) != meta['size']:
            raise ValueError(f'{os.fspath(file)!r} is damaged: it holds '
                             f'{len(gallery)} of {meta["size"]} embeddings')
        gallery.check(
            gallery.embedding_dim if embedding_dim is None else embedding_dim,
            model_id)
        return gallery

    def _describe(self, scores: np.ndarray,
                  indices: np.ndarray) -> SearchResult:
        labels = paths = names = None
        if self.labels is not None:
            labels = self.labels[indices]
        if labels is not None and self.classes is not None:
            names = [[self.classes[label] for label in row] for row in labels]
        if self.paths is not None:
            paths = [[self.paths[index] for index in row] for row in indices]
        return SearchResult(scores, indices, labels, paths, names,
                            tuple(self.classes or ()))

    def _nearest(self, queries: np.ndarray,
                 k: int) -> tuple[np.ndarray, np.ndarray]:
        """Propose candidates in float32, order them in float64.

        Float32 products of different kernels differ in their last digits, so
        what decides the order is computed once, the same way for both
        backends; candidates are added until none that is left out could
        belong among the ``k``.
        """
        wanted = min(len(self), k + 16)
        while True:
            proposed, candidates = self._propose(queries, wanted)
            scores, order = self._rank(queries, candidates)
            left_out_below = proposed.min(axis=1) + _ROUNDING
            if wanted == len(self) or (scores[:, k - 1] >
                                       left_out_below).all():
                return scores[:, :k], order[:, :k]
            wanted = min(len(self), 4 * wanted)

    def _propose(self, queries: np.ndarray,
                 count: int) -> tuple[np.ndarray, np.ndarray]:
        if self.backend == 'faiss' and count < len(self):
            if self._search is None:
                # brings MMDetection along, seconds that torch does not need
                from mmrank.evaluation.faiss_search import faiss_index
                self._search = faiss_index(torch.from_numpy(self.embeddings))
            scores, indices = self._search(torch.from_numpy(queries), count)
        else:
            scores, indices = nearest_neighbours(
                torch.from_numpy(queries),
                torch.from_numpy(self.embeddings),
                k=count)
        return scores.numpy(), indices.numpy()

    def _rank(self, queries: np.ndarray,
              candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores = np.empty(candidates.shape, np.float32)
        # a row at a time: (count, D) in float64 is the largest temporary
        for row, query in enumerate(queries.astype(np.float64)):
            chosen = self.embeddings[candidates[row]].astype(np.float64)
            scores[row] = (chosen * query).sum(axis=1)
        order = np.lexsort((candidates, -scores), axis=1)
        return (np.take_along_axis(scores, order, 1),
                np.take_along_axis(candidates, order, 1))


def _read_meta(arrays: dict[str, np.ndarray],
               file: str | os.PathLike) -> dict[str, Any]:
    name = os.fspath(file)
    try:
        meta = json.loads(arrays['meta'].tobytes().decode())
        found = meta['format'], meta['version']
    except (KeyError, ValueError, TypeError):
        raise ValueError(f'{name!r} is no gallery of mmrank; build one with '
                         'GallerySearch.save') from None
    if found != (FORMAT, VERSION):
        raise ValueError(
            f'{name!r} is of format {found[0]!r}, version {found[1]!r}, but '
            f'this mmrank reads {FORMAT!r}, version {VERSION}: build the '
            'gallery again')
    missing = {'size', 'model_id', 'classes', 'paths'} - set(meta)
    missing |= {'embeddings'} - set(arrays)
    if missing:
        raise ValueError(f'{name!r} is damaged: it lacks {sorted(missing)}; '
                         'build the gallery again')
    return meta


def _choose_backend(backend: str) -> str:
    if backend not in ('auto', 'faiss', 'torch'):
        raise ValueError("backend must be 'auto', 'faiss' or 'torch', but "
                         f'got {backend!r}')
    if backend == 'auto':
        try:
            import faiss  # noqa: F401
        except ImportError:
            return 'torch'
        return 'faiss'
    if backend == 'faiss':
        need('faiss', "backend='faiss'", 'faiss-cpu',
             instead="use backend='torch'")
    return backend


def _as_matrix(values: Any, name: str) -> np.ndarray:
    if isinstance(values, Tensor):
        values = values.detach().cpu().float().numpy()
    matrix = np.asarray(values, dtype=np.float32)
    if name.startswith('query') and matrix.ndim == 1:
        matrix = matrix[None]
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise ValueError(f'{name} must have the shape (N, D), but have '
                         f'{matrix.shape}')
    broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(broken):
        raise ValueError(f'{name} must be finite, but {len(broken)} of '
                         f'{len(matrix)} are not, the first at '
                         f'{broken[0]}')
    return matrix


def _unit_rows(matrix: np.ndarray) -> np.ndarray:
    squares = np.einsum('nd,nd->n', matrix, matrix, dtype=np.float64)
    lengths = np.sqrt(squares, dtype=np.float64)
    lengths[lengths == 0] = 1
    return np.ascontiguousarray(matrix / lengths[:, None], dtype=np.float32)


def _as_labels(labels: Any, size: int) -> np.ndarray | None:
    if labels is None:
        return None
    array = np.asarray(labels)
    if array.shape != (size, ) or (size
                                   and array.dtype.kind not in 'iu'):
        raise ValueError(f'labels must be {size} integers, one an embedding, '
                         f'but are {array.dtype} of shape {array.shape}')
    return array.astype(np.int64)


def _as_paths(paths: Any, size: int) -> list[str] | None:
    if paths is None:
        return None
    listed = [os.fspath(path) for path in paths]
    if len(listed) != size:
        raise ValueError(f'paths must be {size}, one an embedding, but are '
                         f'{len(listed)}')
    return listed


def _as_classes(classes: Any, labels: np.ndarray | None) -> list[str] | None:
    if classes is None:
        return None
    names = [str(name) for name in classes]
    if labels is not None and len(labels) and not (
            labels.min() >= 0 and labels.max() < len(names)):
        raise ValueError(
            f'labels lie in [{labels.min()}, {labels.max()}], but there are '
            f'{len(names)} class names')
    return names
