"""Precision-recall curves as an image."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def draw_precision_recall(
        runs: Mapping[str, Sequence[Mapping[str, Any]]],
        classes: Sequence[str],
        *,
        columns: int = 4,
        title: str | None = None) -> np.ndarray:
    """Draws a small chart for each class and one of the AP of all classes.

    Args:
        runs (Mapping[str, Sequence[Mapping]]): For each run, by name, a
            curve for each class: ``recall`` and ``precision``, both (n,),
            after each detection in order of score, and ``ap``.
        classes (Sequence[str]): The names of the C classes.
        columns (int): Charts in a row, > 0.
        title (str, optional): Written above the charts.

    Returns:
        ndarray: An RGB image (H, W, 3), uint8. A class without detections
        gets an empty chart.

    Raises:
        ValueError: A run has not one curve for each class.

    Examples:
        >>> curve = dict(recall=np.array([.5, .5, 1.]),
        ...              precision=np.array([1., .5, .67]), ap=0.83)
        >>> draw_precision_recall({'run': [curve]}, ['car']).dtype
        dtype('uint8')
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    for name, curves in runs.items():
        if len(curves) != len(classes):
            raise ValueError(
                f'run {name!r} has {len(curves)} curves for {len(classes)} '
                'classes')
    columns = min(columns, len(classes) + 1)
    rows = -(-(len(classes) + 1) // columns)
    figure = Figure(figsize=(3 * columns, 2.8 * rows), dpi=100,
                    layout='constrained')
    canvas = FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(rows, columns)).ravel()
    for index, class_name in enumerate(classes):
        _draw_class(axes[index], class_name,
                    {name: curves[index] for name, curves in runs.items()})
    _draw_summary(axes[len(classes)], runs, classes)
    for unused in axes[len(classes) + 1:]:
        unused.axis('off')
    if title is not None:
        figure.suptitle(title)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3].copy()


def _draw_class(axes: Any, class_name: str,
                curves: Mapping[str, Mapping[str, Any]]) -> None:
    for name, curve in curves.items():
        ap = float(np.mean(curve['ap']))
        # a curve starts at recall 0 with the precision of its best detection
        recall = np.concatenate([[0.0], curve['recall']])
        precision = np.concatenate(
            [curve['precision'][:1], curve['precision']])
        if len(precision) == len(recall):
            axes.plot(recall, precision, label=f'{name} {ap:.3f}')
    axes.set(title=class_name, xlim=(0, 1), ylim=(0, 1.02),
             xlabel='recall', ylabel='precision')
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(loc='lower right', fontsize='small')


def _draw_summary(axes: Any, runs: Mapping[str, Sequence[Mapping[str, Any]]],
                  classes: Sequence[str]) -> None:
    height = 0.8 / max(len(runs), 1)
    places = np.arange(len(classes))
    for shift, (name, curves) in enumerate(runs.items()):
        aps = [float(np.mean(curve['ap'])) for curve in curves]
        axes.barh(places + shift * height, aps, height,
                  label=f'{name} {np.mean(aps):.3f}')
    axes.set(title='AP of each class, and their mean', xlim=(0, 1))
    axes.set_yticks(places + height * (len(runs) - 1) / 2, classes)
    axes.invert_yaxis()
    axes.legend(loc='lower right', fontsize='small')
