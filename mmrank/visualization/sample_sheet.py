"""A sheet of images with their boxes and labels, as one picture."""

from __future__ import annotations

import os
import os.path as osp
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from PIL import Image, ImageDraw

from mmrank.datasets.readers.annotations import Box


@dataclass
class Sample:
    """What is drawn of an image: where it is, or its pixels, and labels."""

    image: str | np.ndarray
    title: str
    boxes: list[Box] = field(default_factory=list)


def draw_sheet(samples: Sequence[Sample], file: str | os.PathLike,
               tile: int = 192, columns: int = 6) -> list[str]:
    """Writes a PNG of images side by side, boxes and labels on them.

    A box is red; orange if it is difficult, grey if training drops it.

    Args:
        samples (Sequence[Sample]): drawn row by row.
        file (path): its folder is made.
        tile (int): the longest side of an image in it.
        columns (int): images a row.

    Returns:
        list[str]: a line for each image that cannot be read, naming it.
    """
    tiles, faults = [], []
    for sample in samples:
        try:
            tiles.append(_tile(sample, tile))
        except (OSError, ValueError, SyntaxError) as error:
            faults.append(f'the image {sample.image} cannot be read: {error}')
    rows = max(1, -(-len(tiles) // columns))
    sheet = Image.new('RGB', (columns * tile, rows * (tile + 14)), 'white')
    pen = ImageDraw.Draw(sheet)
    for place, (image, title) in enumerate(tiles):
        x, y = place % columns * tile, place // columns * (tile + 14)
        sheet.paste(image, (x, y + 14))
        pen.text((x + 2, y + 1), title, fill='black')
    os.makedirs(osp.dirname(osp.abspath(file)), exist_ok=True)
    sheet.save(file)
    return faults


def _tile(sample: Sample, size: int) -> tuple[Image.Image, str]:
    if isinstance(sample.image, str):
        with Image.open(sample.image) as opened:
            image = opened.convert('RGB')
    else:
        image = Image.fromarray(np.asarray(sample.image, np.uint8)
                                ).convert('RGB')
    scale = (size - 4) / max(image.size)
    image = image.resize([max(1, round(side * scale))
                          for side in image.size])
    pen = ImageDraw.Draw(image)
    for box in sample.boxes:
        colour = 'gray' if box.dropped else (
            'orange' if box.difficult else 'red')
        corners = [value * scale for value in box.corners]
        pen.rectangle([min(corners[0], corners[2]),
                       min(corners[1], corners[3]),
                       max(corners[0], corners[2]),
                       max(corners[1], corners[3])], outline=colour)
        pen.text((corners[0] + 2, corners[1]), _printable(box.name),
                 fill=colour)
    return image, _printable(sample.title)[:size // 6]


def _printable(text: str) -> str:
    """Pillow's own font may know ASCII alone."""
    return text.encode('ascii', 'replace').decode()
