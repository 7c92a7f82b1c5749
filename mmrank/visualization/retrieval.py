"""Pictures of a retrieval: who was found, and how the embedding lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.visualization import Visualizer
from PIL import Image
from torch import Tensor

from mmrank.optional import need
from mmrank.registry import VISUALIZERS

_RIGHT, _WRONG, _QUERY = (34, 160, 60), (214, 40, 40), (60, 60, 60)
_METHODS = ('tsne', 'umap', 'pca')


@VISUALIZERS.register_module()
class RetrievalVisualizer(Visualizer):
    """MMEngine's visualizer with the pictures of retrieval.

    They go wherever its backends put images; ``LocalVisBackend`` writes PNG
    files below ``vis_image``.
    """

    def add_neighbours(self,
                       name: str,
                       queries: Sequence[np.ndarray],
                       neighbours: Sequence[Sequence[np.ndarray]],
                       right: Sequence[Sequence[bool]],
                       step: int = 0) -> None:
        """A row per query, its nearest neighbours in green or red frames.

        Args:
            name (str): of the picture.
            queries (Sequence[np.ndarray]): Q images of bytes, each (H, W, 3)
                in RGB or (H, W); sizes may differ.
            neighbours (Sequence[Sequence[np.ndarray]]): the k images of each
                query, nearest first.
            right (Sequence[Sequence[bool]]): whether each has the query's
                class.
            step (int): of the training.
        """
        self.add_image(name, draw_neighbours(queries, neighbours, right),
                       step)

    def add_embedding(self,
                      name: str,
                      embeddings: Tensor,
                      labels: Tensor,
                      proxies: Tensor | None = None,
                      method: str = 'tsne',
                      step: int = 0) -> None:
        """The embeddings in the plane, coloured by class, proxies as stars.

        Args:
            name (str): of the picture.
            embeddings (Tensor): shape (N, D).
            labels (Tensor): shape (N,).
            proxies (Tensor, optional): shape (C, D); row c is the proxy of
                class c. Only those of classes in ``labels`` are drawn.
            method (str): 'tsne' (scikit-learn), 'umap' (umap-learn) or
                'pca'.
            step (int): of the training.
        """
        self.add_image(
            name, draw_embedding(embeddings, labels, proxies, method), step)


def draw_neighbours(queries: Sequence[np.ndarray],
                    neighbours: Sequence[Sequence[np.ndarray]],
                    right: Sequence[Sequence[bool | None]],
                    size: int = 72,
                    frame: int = 4) -> np.ndarray:
    """The picture of :meth:`RetrievalVisualizer.add_neighbours`.

    A ``None`` in ``right`` means that nobody knows; its frame is grey.

    Returns:
        np.ndarray: bytes, shape (H, W, 3), RGB.

    Raises:
        ValueError: without a query, or if lengths differ.
    """
    if not len(queries) == len(neighbours) == len(right) or not queries:
        raise ValueError(f'{len(queries)} queries, {len(neighbours)} lists of '
                         f'neighbours and {len(right)} of their rightness do '
                         'not make a picture')
    gap = 4
    columns = max(len(row) for row in neighbours)
    cell = size + 2 * frame + gap
    # a wider gap parts the query from its neighbours
    canvas = np.full(
        (len(queries) * cell + gap, (columns + 1) * cell + 4 * gap, 3), 255,
        dtype=np.uint8)
    for row, query in enumerate(queries):
        top = row * cell + gap
        _paste(canvas, query, top, gap, size, frame, _QUERY)
        for column, image in enumerate(neighbours[row]):
            left = (column + 1) * cell + 4 * gap
            colour = {None: _QUERY, True: _RIGHT, False: _WRONG}[
                right[row][column]]
            _paste(canvas, image, top, left, size, frame, colour)
    return canvas


def draw_embedding(embeddings: Tensor,
                   labels: Tensor,
                   proxies: Tensor | None = None,
                   method: str = 'tsne',
                   seed: int = 0) -> np.ndarray:
    """The picture of :meth:`RetrievalVisualizer.add_embedding`.

    Returns:
        np.ndarray: bytes, shape (H, W, 3), RGB.

    Raises:
        ValueError: for an unknown method or fewer than four points.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    labels = labels.cpu()
    classes, numbers = labels.unique(return_inverse=True)
    points = embeddings.detach().float().cpu()
    if proxies is not None:
        chosen = proxies.detach().float().cpu()[classes]
        points = torch.cat([points, chosen])
    points = torch.nn.functional.normalize(points)
    plane = project(points, method, seed)

    figure = Figure(figsize=(7, 7), dpi=110)
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.02, 0.02, 0.96, 0.92))
    number = len(labels)
    # neighbouring class numbers get distant hues
    hues = (torch.arange(len(classes)) * 0.618034) % 1
    axes.scatter(plane[:number, 0], plane[:number, 1], c=hues[numbers],
                 cmap='hsv', s=14, alpha=0.75, linewidths=0, vmin=0, vmax=1)
    if proxies is not None:
        axes.scatter(plane[number:, 0], plane[number:, 1], c=hues,
                     cmap='hsv', s=130, marker='*', edgecolors='black',
                     linewidths=0.8, vmin=0, vmax=1)
    stars = ', proxies as stars' if proxies is not None else ''
    axes.set_title(f'{number} embeddings of {len(classes)} classes by '
                   f'{method}{stars}')
    axes.set_xticks([])
    axes.set_yticks([])
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def check_method(method: str) -> Any:
    """Whether points can be laid into the plane this way.

    Returns:
        The module of an optional library that does it, or None.

    Raises:
        ValueError: for an unknown method.
        ImportError: for 'umap' where umap-learn is not installed.
    """
    if method not in _METHODS:
        raise ValueError(
            f'method must be one of {_METHODS}, but got {method!r}')
    if method != 'umap':
        return None
    return need('umap', "method='umap'", 'umap-learn',
                instead="use method='tsne' or 'pca'")


def project(points: Tensor, method: str, seed: int = 0) -> np.ndarray:
    """Points (N, D) in the plane, float array (N, 2)."""
    check_method(method)
    if len(points) < 4:
        raise ValueError(
            f'a plot needs at least four points, but got {len(points)}')
    neighbours = min(30, (len(points) - 1) // 3)
    if method == 'tsne':
        from sklearn.manifold import TSNE
        return TSNE(perplexity=max(neighbours, 1), init='pca',
                    random_state=seed).fit_transform(points.numpy())
    if method == 'umap':
        return check_method(method).UMAP(
            n_neighbors=max(neighbours, 2), metric='cosine',
            random_state=seed).fit_transform(points.numpy())
    centred = points - points.mean(0)
    _, _, axes = torch.linalg.svd(centred, full_matrices=False)
    return (centred @ axes[:2].T).numpy()


def _paste(canvas: np.ndarray, image: np.ndarray, top: int, left: int,
           size: int, frame: int, colour: tuple[int, int, int]) -> None:
    """An image, fitted into a square, in a frame."""
    outer = size + 2 * frame
    canvas[top:top + outer, left:left + outer] = colour
    thumbnail = Image.fromarray(np.asarray(image)).convert('RGB')
    scale = size / max(thumbnail.size)
    wide, high = (max(1, round(side * scale)) for side in thumbnail.size)
    resized = np.asarray(thumbnail.resize((wide, high)))
    inner = canvas[top + frame:top + frame + size,
                   left + frame:left + frame + size]
    inner[:] = 255
    y, x = (size - high) // 2, (size - wide) // 2
    inner[y:y + high, x:x + wide] = resized
