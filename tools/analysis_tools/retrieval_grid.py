"""Draw images of a gallery with their nearest neighbours in it.

Every row begins with a query, an image of the gallery itself, which is left
out of its own neighbours. Neighbours of its class have a green frame, others
a red one. With ``--worst``, the queries whose neighbours are most often of
another class are drawn, which shows what a model confuses.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
from PIL import Image

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.apis import GallerySearch
from mmrank.datasets import LoadImage
from mmrank.visualization.retrieval import draw_neighbours


def neighbours_of_all(gallery: GallerySearch, k: int) -> np.ndarray:
    """The ``k`` nearest of each item, itself left out, shape (G, k)."""
    found = gallery.query(gallery.embeddings, k + 1).indices
    itself = found == np.arange(len(gallery))[:, None]
    # among more than k duplicates an item may not find itself: drop the last
    itself[~itself.any(axis=1), -1] = True
    return found[~itself].reshape(len(gallery), -1)


def choose(right: np.ndarray, rows: int, worst: bool) -> np.ndarray:
    """Which items are queries: spread evenly, or those with most mistakes."""
    rows = min(rows, len(right))
    if worst:
        return np.argsort(right.mean(axis=1), kind='stable')[:rows]
    return np.linspace(0, len(right) - 1, rows).astype(int)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('gallery', type=Path, help='the gallery (.npz)')
    parser.add_argument('--out', type=Path, required=True,
                        help='the picture to write (.png)')
    parser.add_argument('--k', type=int, default=8, help='neighbours a query')
    parser.add_argument('--rows', type=int, default=10, help='queries')
    parser.add_argument('--worst', action='store_true')
    args = parser.parse_args(arguments)
    gallery = GallerySearch.load(args.gallery)
    if gallery.labels is None or gallery.paths is None or len(gallery) < 2:
        raise ValueError(f'{args.gallery} needs at least two images with '
                         'paths and labels: embed a folder whose subfolders '
                         'are the classes')
    found = neighbours_of_all(gallery, min(args.k, len(gallery) - 1))
    right = gallery.labels[found] == gallery.labels[:, None]
    chosen, load = choose(right, args.rows, args.worst), LoadImage()

    def read(index: int) -> np.ndarray:
        return np.asarray(load({'img_path': gallery.paths[index]})['img'])

    picture = draw_neighbours(
        [read(query) for query in chosen],
        [[read(index) for index in found[query]] for query in chosen],
        right[chosen].tolist())
    args.out.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(args.out)
    print(f'{args.out}: of all neighbours {right.mean():.1%} are right')


if __name__ == '__main__':
    main()
