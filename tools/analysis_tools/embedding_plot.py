"""Draw the embeddings of a gallery in the plane, coloured by class.

Reads a gallery made by ``python -m mmrank embed`` of a folder whose
subfolders are the classes.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

import torch
from PIL import Image

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.apis import GallerySearch
from mmrank.visualization.retrieval import draw_embedding


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('gallery', type=Path, help='the gallery (.npz)')
    parser.add_argument('--out', type=Path, required=True,
                        help='the picture to write (.png)')
    parser.add_argument('--method', choices=['tsne', 'umap', 'pca'],
                        default='tsne')
    parser.add_argument('--num-classes', type=int, default=20,
                        help='draw only the first so many (default: 20)')
    args = parser.parse_args(arguments)
    gallery = GallerySearch.load(args.gallery)
    if gallery.labels is None:
        raise ValueError(f'{args.gallery} has no labels to colour by: embed '
                         'a folder whose subfolders are the classes')
    embeddings = torch.from_numpy(gallery.embeddings)
    labels = torch.from_numpy(gallery.labels)
    shown = torch.isin(labels, labels.unique()[:args.num_classes])
    picture = draw_embedding(
        embeddings[shown], labels[shown], method=args.method)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(args.out)
    print(f'{args.out}: {int(shown.sum())} of {len(gallery)} embeddings')


if __name__ == '__main__':
    main()
