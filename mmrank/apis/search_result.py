"""What a search in a gallery has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class SearchResult:
    """The nearest gallery items of Q queries, best first.

    Args:
        scores (np.ndarray): (Q, k) float32 cosine similarities, falling.
        indices (np.ndarray): (Q, k) int64 positions in the gallery.
        labels (np.ndarray, optional): (Q, k) int64, where the gallery knows
            its classes.
        paths (list[list[str]], optional): Q lists of k paths, where the
            gallery knows its files.
        class_names (list[list[str]], optional): Q lists of k names, where
            the gallery knows the names of its classes.
        known_classes (tuple[str]): these names, of the whole gallery.
    """

    scores: np.ndarray
    indices: np.ndarray
    labels: np.ndarray | None = None
    paths: list[list[str]] | None = None
    class_names: list[list[str]] | None = None
    known_classes: tuple[str, ...] = ()

    def rows(self) -> list[list[dict[str, Any]]]:
        """A list of plain dictionaries a query, ready for JSON."""
        return [[self._item(row, column)
                 for column in range(self.scores.shape[1])]
                for row in range(self.scores.shape[0])]

    def _item(self, row: int, column: int) -> dict[str, Any]:
        item: dict[str, Any] = {
            'index': int(self.indices[row, column]),
            'score': round(float(self.scores[row, column]), 6)}
        if self.labels is not None:
            item['label'] = int(self.labels[row, column])
        if self.class_names is not None:
            item['class'] = self.class_names[row][column]
        if self.paths is not None:
            item['path'] = self.paths[row][column]
        return item
