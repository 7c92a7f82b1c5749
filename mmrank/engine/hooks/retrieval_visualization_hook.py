from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.runner import BaseLoop, Runner
from torch import Tensor

from mmrank.datasets import LoadImage
from mmrank.evaluation.embeddings import EmbeddingCollector, Embeddings
from mmrank.functional import nearest_neighbours
from mmrank.registry import HOOKS
from mmrank.visualization.retrieval import check_method
from mmrank.visualization.spared import spared

from ..bare_model import bare_model


@HOOKS.register_module()
class RetrievalVisualizationHook(Hook):
    """Draws neighbours and the embedding after an evaluation.

    The config's visualizer must be ``mmrank.RetrievalVisualizer``. The
    pictures are called ``neighbours`` and ``embedding``. A wrong neighbour's
    class differs from the query's.

    Args:
        num_queries (int): rows of the grid, spread evenly over the queries.
        k (int): neighbours of each.
        num_classes (int): how many classes the embedding's plot shows. 0
            draws none.
        method (str): 'tsne', 'umap' or 'pca'.
        with_proxies (bool): also the head's proxies; sensible only where the
            images evaluated are of the training classes.
        on_val (bool): also after every validation, not only after a test.

    Raises:
        TypeError: before a run, if the visualizer is another one.
        ValueError, ImportError: for a method that is unknown, or needs a
            library that is not installed. An error of drawing itself costs
            the picture and a line of the log, not the run.
    """

    def __init__(self,
                 num_queries: int = 10,
                 k: int = 8,
                 num_classes: int = 20,
                 method: str = 'tsne',
                 with_proxies: bool = False,
                 on_val: bool = False) -> None:
        check_method(method)
        self.num_queries = num_queries
        self.k = k
        self.num_classes = num_classes
        self.method = method
        self.with_proxies = with_proxies
        self.on_val = on_val
        self.collector = EmbeddingCollector()

    def before_run(self, runner: Runner) -> None:
        """Look at the visualizer before hours of training."""
        if not hasattr(runner.visualizer, 'add_neighbours'):
            raise TypeError(
                'RetrievalVisualizationHook draws with visualizer=dict('
                "type='mmrank.RetrievalVisualizer', ...), but the config has "
                f'{type(runner.visualizer).__name__}')

    def after_test_iter(self,
                        runner: Runner,
                        batch_idx: int,
                        data_batch: Any = None,
                        outputs: Sequence | None = None) -> None:
        """Keep the embeddings."""
        for sample in outputs or ():
            self.collector.add(sample.to_dict())

    def after_val_iter(self,
                       runner: Runner,
                       batch_idx: int,
                       data_batch: Any = None,
                       outputs: Sequence | None = None) -> None:
        """Keep the embeddings, if asked to draw them."""
        if self.on_val:
            self.after_test_iter(runner, batch_idx, data_batch, outputs)

    def after_test_epoch(self,
                         runner: Runner,
                         metrics: dict[str, float] | None = None) -> None:
        """Draw."""
        found = self.collector.join()
        self._draw(runner, found, runner.test_dataloader.dataset)

    def after_val_epoch(self,
                        runner: Runner,
                        metrics: dict[str, float] | None = None) -> None:
        """Draw, if asked to."""
        if self.on_val:
            found = self.collector.join()
            self._draw(runner, found, runner.val_dataloader.dataset)

    @spared
    def _draw(self, runner: Runner, found: Embeddings, dataset: Any) -> None:
        visualizer, step = runner.visualizer, _step(runner)
        visualizer.add_neighbours(
            'neighbours', *self._grid(found, dataset), step=step)
        if self.num_classes > 0:
            classes = found.labels.unique()[:self.num_classes]
            shown = torch.isin(found.labels, classes)
            visualizer.add_embedding(
                'embedding', found.values[shown], found.labels[shown],
                self._proxies(runner), self.method, step)

    def _grid(self, found: Embeddings,
              dataset: Any) -> tuple[list, list, list]:
        """Queries, their neighbours, and which of those are right."""
        query = found.is_query.nonzero()[:, 0]
        chosen = query[torch.linspace(
            0, len(query) - 1, min(self.num_queries, len(query))).long()]
        items = torch.arange(len(found.labels), device=query.device)
        separate = not bool(found.is_query.all())
        if separate:
            items = items[~found.is_query]
        # one more, for the query itself is among them where all are one set
        _, nearest = nearest_neighbours(
            found.values[chosen], found.values[items], k=self.k + 1)
        queries, neighbours, right = [], [], []
        for number, row in zip(chosen.tolist(), items[nearest]):
            others = row[row != number][:self.k]
            queries.append(_image(dataset, found.indices[number]))
            neighbours.append(
                [_image(dataset, index) for index in found.indices[others]])
            right.append(
                (found.labels[others] == found.labels[number]).tolist())
        return queries, neighbours, right

    def _proxies(self, runner: Runner) -> Tensor | None:
        return bare_model(runner).head.proxies if self.with_proxies else None


def _step(runner: Runner) -> int:
    """The training step; 0 without training, whose data are not asked for.

    ``runner.iter`` would build the training loop and its data set.
    """
    loop = runner._train_loop
    return loop.iter if isinstance(loop, BaseLoop) else 0


def _image(dataset: Any, index: Tensor) -> np.ndarray:
    """The image as it lies on disk, RGB."""
    return np.asarray(LoadImage()(dataset.get_data_info(int(index)))['img'])
