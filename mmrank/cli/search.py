"""Finds the most similar images of a gallery."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from PIL import Image

from mmrank.apis import GallerySearch, SearchResult
from mmrank.datasets import LoadImage
from mmrank.files import write_whole
from mmrank.visualization.retrieval import draw_neighbours

from .images import (
    add_extractor,
    build_extractor,
    embeddings_of,
    find_images,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Model, gallery, images, outputs."""
    add_extractor(parser)
    parser.add_argument('gallery', help='made by `embed`')
    parser.add_argument('images', nargs='+', help='image files or one folder')
    parser.add_argument('--k', type=int, default=5,
                        help='neighbours an image (default: 5)')
    parser.add_argument('--backend', choices=['auto', 'faiss', 'torch'],
                        default='auto')
    parser.add_argument('--json', help='write the results to this file too')
    parser.add_argument(
        '--picture', help='draw them into this file (.png), neighbours of '
        "the query's class in green, others in red; the class is the name "
        'of its folder, if the gallery has such a class')


def run(args: argparse.Namespace) -> int:
    """Prints the neighbours of each image."""
    paths = find_images(args.images)[0]
    # the cheap refusals first: a model takes a while to build
    gallery = GallerySearch.load(args.gallery, backend=args.backend)
    extractor = build_extractor(args)
    gallery.check(extractor.embedding_dim, extractor.model_id)
    result = gallery.query(embeddings_of(extractor, paths, args), args.k)
    rows = result.rows()
    for path, row in zip(paths, rows):
        print(path)
        for item in row:
            print('  ' + _line(item))
    if args.json:
        found = [{'query': path, 'neighbours': row}
                 for path, row in zip(paths, rows)]
        with write_whole(args.json) as file:
            file.write((json.dumps(found, indent=1) + '\n').encode())
    if args.picture:
        draw_result(args.picture, paths, result)
    return 0


def draw_result(file: str | os.PathLike, queries: list[str],
                result: SearchResult) -> None:
    """Write a picture with a row for each query and its neighbours.

    Args:
        file (path): where to; its suffix says the format.
        queries (list[str]): paths of the Q queries.
        result (SearchResult): what was found for them.

    Raises:
        ValueError: if the gallery knows no paths.
        FileNotFoundError: if one of its images is no longer there.
    """
    if result.paths is None:
        raise ValueError('the gallery was built without paths, so there is '
                         'nothing to draw')
    load = LoadImage()

    def read(path: str) -> Any:
        return load({'img_path': path})['img']

    picture = draw_neighbours(
        [read(path) for path in queries],
        [[read(path) for path in row] for row in result.paths],
        [_right(path, row, result) for row, path in enumerate(queries)])
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(file)


def _right(query: str, row: int, result: SearchResult) -> list[bool | None]:
    if result.class_names is None:
        return [None] * len(result.indices[row])
    own = Path(query).absolute().parent.name
    return [name == own if own in result.known_classes else None
            for name in result.class_names[row]]


def _line(item: dict[str, Any]) -> str:
    words = [f'{item["score"]:.4f}']
    words += [str(item[key]) for key in ('class', 'path') if key in item]
    return '  '.join(words if len(words) > 1 else
                     [*words, f'item {item["index"]}'])
