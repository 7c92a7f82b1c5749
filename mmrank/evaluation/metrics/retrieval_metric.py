from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from mmengine.dist import broadcast_object_list, is_main_process
from mmengine.evaluator import BaseMetric
from mmengine.logging import MMLogger

from mmrank.evaluation.embeddings import EmbeddingCollector, Embeddings
from mmrank.evaluation.faiss_search import faiss_index
from mmrank.evaluation.shared_errors import share_errors
from mmrank.functional import retrieval_metrics
from mmrank.registry import METRICS


@METRICS.register_module()
class RetrievalMetric(BaseMetric):
    """R@K, R-precision, MAP@R and mAP of the predicted embeddings.

    :func:`mmrank.functional.retrieval_metrics` over the whole data set. If
    its samples carry ``is_query``, as In-Shop's do, queries are sought among
    the other samples; otherwise each sample is sought among all others.

    Several processes give the result of one: their embeddings, labels and
    sample indices are gathered, an image that two of them saw counts once,
    and the figures are broadcast. The search runs on the device of the
    embeddings.

    Samples of one ``file_id`` are one image, as a list that allows a query
    in its gallery marks them: none is a neighbour of itself there. Each such
    query is searched by itself, which takes longer.

    A query whose class has no other image has nothing to find: it is left
    out, and ``num_queries`` says how many count. Where none is left there is
    no figure, and no best checkpoint to choose by it: that is an error.

    Args:
        ks (Sequence[int]): the K of R@K. Published: 1, 2, 4, 8 for CUB and
            Cars; 1, 10, 100, 1000 for SOP; 1, 10, 20, 30, 40, 50 for In-Shop.
        with_map (bool): also mAP, which sorts the gallery for each query.
        chunk_size (int, optional): queries compared at once; by default
            such that a block takes 256 MiB.
        backend (str): what searches: 'torch', 'faiss' (on the CPU, in
            float32, without mAP), or 'auto' for faiss where it is installed
            and can do it. The figures are the same.
        outfile (str, optional): where to save the embeddings, as a dict of
            tensors, by ``torch.save``.
        prefix (str, optional): of the names, 'retrieval' by default.
    """

    default_prefix = 'retrieval'

    def __init__(self,
                 ks: Sequence[int] = (1, 2, 4, 8),
                 with_map: bool = False,
                 chunk_size: int | None = None,
                 backend: str = 'auto',
                 outfile: str | None = None,
                 prefix: str | None = None) -> None:
        super().__init__(prefix=prefix)
        if not isinstance(ks, Sequence) or not ks or any(
                not isinstance(k, int) or k < 1 for k in ks):
            raise ValueError(f'ks must be integers >= 1, but got {ks!r}')
        self.ks = tuple(ks)
        self.with_map = with_map
        if backend not in ('auto', 'torch', 'faiss'):
            raise ValueError("backend must be 'auto', 'torch' or 'faiss', "
                             f'but got {backend!r}')
        if backend == 'faiss' and with_map:
            raise ValueError("backend='faiss' does not sort the whole gallery "
                             "for mAP: set with_map=False or backend='torch'")
        self.chunk_size = chunk_size
        self.backend = backend
        self.outfile = outfile
        self.collector = EmbeddingCollector()

    def process(self, data_batch: Any, data_samples: Sequence[dict]) -> None:
        """Keep the embedding, label and sample index of every sample."""
        for sample in data_samples:
            self.collector.add(sample)

    @share_errors
    def evaluate(self, size: int) -> dict[str, float]:
        """The figures, the same on every process.

        Args:
            size (int): length of the data set; not needed here, since images
                are recognised by their sample index.

        Raises:
            ValueError: on every process, if the embeddings are not finite,
                or if no query has an image of its class to find.
            OSError, RuntimeError: on every process, if ``outfile`` cannot be
                written.
        """
        joined = self.collector.join()
        figures: list[dict[str, float]] = [{}]
        if is_main_process():
            figures = [{f'{self.prefix}/{name}': value
                        for name, value in self._figures(joined).items()}]
        broadcast_object_list(figures)
        return figures[0]

    def compute_metrics(self, results: list[Embeddings]) -> dict[str, float]:
        """The figures of embeddings that were put together already."""
        return self._figures(results[0])

    def _by_faiss(self, values: torch.Tensor) -> bool:
        if self.backend == 'auto':
            return (not self.with_map and values.device.type == 'cpu'
                    and values.dtype != torch.float64
                    and find_spec('faiss') is not None)
        return self.backend == 'faiss'

    def _figures(self, found: Embeddings) -> dict[str, float]:
        if self.outfile is not None:
            Path(self.outfile).parent.mkdir(parents=True, exist_ok=True)
            torch.save({name: value.cpu()
                        for name, value in vars(found).items()}, self.outfile)
        query = found.is_query
        if not query.any():
            raise ValueError(
                f'RetrievalMetric: none of {len(query)} images is a query; '
                'look at the data set of the evaluation, and at is_query in '
                'its list')
        if query.all():
            figures = self._search(found.values, found.labels)
        else:
            figures = self._search_gallery(found)
        skipped, number = figures.pop('num_skipped'), figures['num_queries']
        if not number:
            raise ValueError(
                f'RetrievalMetric: no query has a match: of {skipped} queries '
                'none has another image of its class to be found among '
                f'{len(found.labels.unique())} classes of {len(query)} '
                'images. Evaluate on classes of two images and more')
        if skipped:
            MMLogger.get_current_instance().info(
                f'RetrievalMetric: {skipped} of {skipped + number} queries '
                'skipped, since the gallery holds no item of their class')
        return figures

    def _search(self, *args: torch.Tensor) -> dict[str, float]:
        return retrieval_metrics(
            *args,
            ks=self.ks,
            chunk_size=self.chunk_size,
            with_map=self.with_map,
            index=faiss_index if self._by_faiss(args[0]) else None)

    def _search_gallery(self, found: Embeddings) -> dict[str, float]:
        """Of queries whose own file is in the gallery, each without it."""
        query = found.is_query
        gallery = found.values[~query], found.labels[~query]
        files = found.file_ids[~query]
        own = query & (found.file_ids >= 0) & torch.isin(
            found.file_ids, files)
        parts = []
        if bool((query & ~own).any()):
            parts.append(self._search(found.values[query & ~own],
                                      found.labels[query & ~own], *gallery))
        for row in own.nonzero().flatten():
            rest = files != found.file_ids[row]
            parts.append(self._search(
                found.values[row, None], found.labels[row, None],
                *(values[rest] for values in gallery)))
        return _joined(parts)


def _joined(parts: list[dict[str, float]]) -> dict[str, float]:
    """The figures of several groups of queries as those of all."""
    counts = {name: sum(part[name] for part in parts)
              for name in ('num_queries', 'num_skipped')}
    figures = dict.fromkeys(parts[0], math.nan)
    if counts['num_queries']:
        figures = {name: sum(
            part[name] * part['num_queries'] for part in parts
            if part['num_queries']) / counts['num_queries']
            for name in parts[0]}
    return {**figures, **counts}
