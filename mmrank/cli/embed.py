"""Embeds images into a gallery, a .npz file, that `search` reads."""

from __future__ import annotations

import argparse
import os

from mmrank.apis import GallerySearch

from .images import (
    add_extractor,
    build_extractor,
    embeddings_of,
    find_images,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, images, output."""
    add_extractor(parser)
    parser.add_argument(
        'images', nargs='+', help='image files, or one folder; where all of '
        'its images lie in subfolders, these are their classes')
    parser.add_argument('--out', required=True, help='the gallery (.npz)')


def run(args: argparse.Namespace) -> int:
    """Writes the gallery."""
    if os.path.isdir(args.out):
        raise ValueError(f'--out {args.out} is a folder; name a file')
    paths, labels, classes = find_images(args.images)
    extractor = build_extractor(args)
    gallery = GallerySearch(
        embeddings_of(extractor, paths, args),
        labels,
        paths,
        classes=classes,
        model_id=extractor.model_id)
    gallery.save(args.out)
    of = f' of {len(classes)} classes' if classes else ''
    print(f'{args.out}: {len(gallery)} embeddings{of}, '
          f'{gallery.embedding_dim} wide')
    return 0
