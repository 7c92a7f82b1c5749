"""What the commands over images share: their names, the model, the images."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from mmengine.config import Config, DictAction

from mmrank.apis import EmbeddingExtractor
from mmrank.files.images import list_images
from mmrank.shipped import config_path


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


def add_model(parser: argparse.ArgumentParser) -> None:
    """Config, checkpoint, and how the model runs."""
    parser.add_argument(
        'config', help='a config file, or the name of a shipped config')
    parser.add_argument('checkpoint', help='checkpoint file')
    parser.add_argument('--device', default='auto',
                        help='such as cpu or cuda:1 (default: a GPU if any)')
    parser.add_argument('--batch-size', type=int, default=32,
                        help='images a forward pass (default: 32)')


def add_extractor(parser: argparse.ArgumentParser) -> None:
    """What :func:`build_extractor` and :func:`embeddings_of` read."""
    add_model(parser)
    parser.add_argument('--num-workers', type=int, default=0,
                        help='processes that read images (default: none)')
    parser.add_argument(
        '--cfg-options', nargs='+', action=DictAction, metavar='KEY=VALUE',
        default={}, help='changes to the config, as for `train`')


def existing_config(name: str) -> str:
    """The path of a config file or a shipped config."""
    return name if os.path.isfile(name) else config_path(name)


def build_extractor(args: argparse.Namespace) -> EmbeddingExtractor:
    """The model that the arguments name."""
    config = Config.fromfile(existing_config(args.config))
    config.merge_from_dict(args.cfg_options)
    return EmbeddingExtractor(config, args.checkpoint, args.device)


def embeddings_of(extractor: EmbeddingExtractor, paths: list[str],
                  args: argparse.Namespace) -> Any:
    """The embeddings of images, with a bar where they are many."""
    return extractor(
        paths,
        batch_size=args.batch_size,
        num_workers=args.num_workers,
        progress=len(paths) > args.batch_size)
