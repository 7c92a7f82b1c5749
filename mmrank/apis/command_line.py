"""``python -m mmrank embed | search | detect``: inference on the shell."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction
from PIL import Image

from mmrank.datasets import LoadImage
from mmrank.files import loading_safely, refuse_unreadable
from mmrank.files.images import list_images
from mmrank.shipped import config_path
from mmrank.visualization.retrieval import draw_neighbours

from .embedding_extractor import EmbeddingExtractor
from .gallery_search import GallerySearch, SearchResult


def embed(argv: list[str] | None = None) -> GallerySearch:
    """Embeds images and writes a gallery file.

    Returns:
        The gallery that was written.
    """
    parser = _parser('embed', 'Embeds images into a gallery that `search` '
                     'reads: a .npz file of embeddings, labels and paths.')
    parser.add_argument(
        'images', nargs='+', help='image files, or one folder; where all of '
        'its images lie in subfolders, these are their classes')
    parser.add_argument('--out', required=True, help='the gallery (.npz)')
    args = parser.parse_args(argv)
    if os.path.isdir(args.out):
        raise ValueError(f'--out {args.out} is a folder; name a file')
    paths, labels, classes = find_images(args.images)
    extractor = _extractor(args)
    gallery = GallerySearch(
        _embeddings(extractor, paths, args),
        labels,
        paths,
        classes=classes,
        model_id=extractor.model_id)
    gallery.save(args.out)
    of = f' of {len(classes)} classes' if classes else ''
    print(f'{args.out}: {len(gallery)} embeddings{of}, '
          f'{gallery.embedding_dim} wide')
    return gallery


def search(argv: list[str] | None = None) -> SearchResult:
    """Searches a gallery with images and prints their neighbours.

    Returns:
        What was found.
    """
    parser = _parser('search', 'Finds the most similar images of a gallery.')
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
    args = parser.parse_args(argv)
    paths = find_images(args.images)[0]
    # the cheap refusals first: a model takes a while to build
    gallery = GallerySearch.load(args.gallery, backend=args.backend)
    extractor = _extractor(args)
    gallery.check(extractor.embedding_dim, extractor.model_id)
    result = gallery.query(_embeddings(extractor, paths, args), args.k)
    rows = result.rows()
    for path, row in zip(paths, rows):
        print(path)
        for item in row:
            print('  ' + _line(item))
    if args.json:
        found = [{'query': path, 'neighbours': row}
                 for path, row in zip(paths, rows)]
        Path(args.json).write_text(json.dumps(found, indent=1) + '\n')
    if args.picture:
        draw_result(args.picture, paths, result)
    return result


def detect(argv: list[str] | None = None) -> dict[str, Any]:
    """Detects objects by MMDetection's own inferencer.

    Returns:
        Its results: ``predictions`` and ``visualization``.
    """
    parser = argparse.ArgumentParser(
        prog='mmrank detect', description='Detects objects in images; '
        "MMDetection's DetInferencer with the names of shipped configs.")
    _add_model(parser)
    parser.add_argument('images', nargs='+', help='image files or one folder')
    parser.add_argument('--out-dir', default='outputs',
                        help='pictures go to vis/, boxes to preds/')
    parser.add_argument('--score-thr', type=float, default=.3,
                        help='boxes below are not drawn (default: 0.3)')
    args = parser.parse_args(argv)
    from mmrank.apis import DetInferencer
    paths = find_images(args.images)[0]
    refuse_unreadable(args.checkpoint)
    with loading_safely():
        inferencer = DetInferencer(
            _existing_config(args.config), args.checkpoint,
            None if args.device == 'auto' else args.device)
    return inferencer(
        paths,
        batch_size=args.batch_size,
        pred_score_thr=args.score_thr,
        out_dir=args.out_dir,
        no_save_pred=False,
        print_result=False)


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


def find_images(
    named: list[str]
) -> tuple[list[str], list[int] | None, list[str] | None]:
    """The images that are named on a command line, and their classes.

    Args:
        named (list[str]): image files, or folders.

    Returns:
        tuple: paths; a label for each, and the names of the labels, where
        exactly one folder is named and all of its images lie in subfolders.

    Raises:
        FileNotFoundError: if something does not exist, or a folder has no
            image.
    """
    paths: list[str] = []
    for name in named:
        found = list_images(name) if os.path.isdir(name) else [name]
        if not found:
            raise FileNotFoundError(f'there is no image under {name!r}')
        paths += found
    for path in paths:
        if not os.path.isfile(path):
            raise FileNotFoundError(f'there is no image {path!r}')
    if len(named) > 1 or not os.path.isdir(named[0]):
        return paths, None, None
    parts = [Path(path).relative_to(named[0]).parts for path in paths]
    if any(len(part) == 1 for part in parts):
        return paths, None, None
    classes = sorted({part[0] for part in parts})
    return paths, [classes.index(part[0]) for part in parts], classes


def _parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f'mmrank {name}', description=description)
    _add_model(parser)
    parser.add_argument('--num-workers', type=int, default=0,
                        help='processes that read images (default: none)')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
        default={}, help='changes to the config, as for `train`')
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        'config', help='a config file, or the name of a shipped config')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--device', default='auto',
                        help='such as cpu or cuda:1 (default: a GPU if any)')
    parser.add_argument('--batch-size', type=int, default=32,
                        help='images a forward pass (default: 32)')


def _existing_config(name: str) -> str:
    return name if os.path.isfile(name) else config_path(name)


def _extractor(args: argparse.Namespace) -> EmbeddingExtractor:
    config = Config.fromfile(_existing_config(args.config))
    config.merge_from_dict(args.cfg_options)
    return EmbeddingExtractor(config, args.checkpoint, args.device)


def _embeddings(extractor: EmbeddingExtractor, paths: list[str],
                args: argparse.Namespace) -> Any:
    return extractor(
        paths,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        progress=len(paths) > args.batch_size)


def _line(item: dict[str, Any]) -> str:
    words = [f'{item["score"]:.4f}']
    words += [str(item[key]) for key in ('class', 'path') if key in item]
    return '  '.join(words if len(words) > 1 else
                     [*words, f'item {item["index"]}'])


def main(argv: list[str] | None = None) -> int:
    """Runs the command that ``argv`` names; user errors without a trace."""
    command, *rest = sys.argv[1:] if argv is None else argv
    try:
        {'embed': embed, 'search': search, 'detect': detect}[command](rest)
    except (ValueError, OSError, ImportError) as error:
        print(f'mmrank {command}: {error}', file=sys.stderr)
        return 1
    return 0
