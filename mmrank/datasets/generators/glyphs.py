"""GlyphRetrieval: printed characters as a benchmark of metric learning.

The images are rendered from the fonts inside matplotlib, so nothing is
downloaded. A class is a character, an instance one face of it (sans, serif,
mono; regular, bold, italic) with a mild distortion of its own, the
super-label its script. Test characters never occur in training.
"""

from __future__ import annotations

import os.path as osp
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from mmrank.registry import DATASETS

from ..readers import RetrievalDataset

#: Files below matplotlib's ``mpl-data/fonts/ttf``.
FACES = tuple(
    [f'DejaVuSans{style}' for style in
     ('', '-Bold', '-Oblique', '-BoldOblique')] +
    [f'DejaVuSansMono{style}' for style in
     ('', '-Bold', '-Oblique', '-BoldOblique')] +
    [f'DejaVuSerif{style}' for style in
     ('', '-Bold', '-Italic', '-BoldItalic')] +
    [f'STIXGeneral{style}' for style in ('', 'Bol', 'Italic', 'BolIta')])

#: A character takes part if this many faces have it.
MIN_FACES = 12
#: Letters, digits, currency and mathematical signs, other symbols.
CATEGORIES = ('Lu', 'Ll', 'Lt', 'Lo', 'Nd', 'Sc', 'Sm')
SCRIPTS = ('LATIN', 'GREEK', 'CYRILLIC', 'ARMENIAN', 'GEORGIAN')
# Two characters look alike if, in one of these faces, their undistorted
# images differ, squared and summed, by less than this share of the lighter.
_COMPARED = ('DejaVuSans', 'DejaVuSerif')
_ALIKE = 0.03

# of the distortion: degrees, shares, pixels
_ROTATION, _SCALE, _SHEAR, _SHIFT = 8.0, 0.1, 0.12, 0.06
_NOISE = 0.06


@DATASETS.register_module()
class GlyphRetrievalDataset(RetrievalDataset):
    """Characters in up to 16 faces; classes split in halves, as CUB's.

    The characters are those of some general categories (letters, digits,
    currency and mathematical signs) that at least 12 of the 16 faces have.
    Of characters that look alike, such as Latin, Greek and Cyrillic A, the
    one of the lowest code point is kept and the others are left out, by
    comparing pixels. A fixed shuffle then gives one half to training and one
    to test; ``fit`` and ``val`` are 70 % and 30 % of the training classes,
    for tuning.

    Everything depends on ``seed``, ``image_size`` and the font files alone.

    Args:
        split (str): 'train', 'test', 'fit' or 'val'.
        num_classes (int, optional): only the first so many classes of the
            split, for quick looks.
        image_size (int): height and width in pixels.
        seed (int): of the distortions.
        kwargs: of :class:`RetrievalDataset`.

    Example:
        >>> data = GlyphRetrievalDataset(split='test', num_classes=3)
        >>> data[0]['img'].shape
        (32, 32)
    """

    splits = ('train', 'test', 'fit', 'val')
    layout = 'matplotlib with the fonts that it ships'

    def __init__(self,
                 split: str = 'train',
                 num_classes: int | None = None,
                 image_size: int = 32,
                 seed: int = 0,
                 **kwargs: Any) -> None:
        self.num_classes = num_classes
        self.image_size = image_size
        self.seed = seed
        super().__init__(split=split, **kwargs)

    def load_items(self) -> Iterable[dict]:
        for character in characters_of(self.split)[:self.num_classes]:
            images = render(character, self.image_size, self.seed)
            for face, image in images.items():
                yield dict(
                    img=image,
                    # tells apart, though no such file exists
                    glyph=f'U+{ord(character):04X} {face}',
                    name=f'U+{ord(character):04X}',
                    super_name=script_of(character))


def characters_of(split: str) -> list[str]:
    """The characters of a split, in the shuffled order."""
    characters = distinct_characters()
    order = np.random.default_rng(0).permutation(len(characters))
    shuffled = [characters[i] for i in order]
    half = len(shuffled) // 2
    fit = round(0.7 * half)
    return {
        'train': shuffled[:half],
        'test': shuffled[half:],
        'fit': shuffled[:fit],
        'val': shuffled[fit:half]
    }[split]


def script_of(character: str) -> str:
    """The super-label: the script, or DIGIT or SYMBOL."""
    word = unicodedata.name(character, '').split(' ')[0]
    if word in SCRIPTS:
        return word
    category = unicodedata.category(character)
    return 'DIGIT' if category == 'Nd' else (
        'OTHER LETTER' if category[0] == 'L' else 'SYMBOL')


@lru_cache(maxsize=1)
def candidate_characters() -> tuple[str, ...]:
    """All characters that enough faces have, look-alikes included."""
    number: dict[int, int] = {}
    for face in FACES:
        for code in _codes(face):
            number[code] = number.get(code, 0) + 1
    found = sorted(code for code, n in number.items() if n >= MIN_FACES)
    return tuple(chr(code) for code in found
                 if unicodedata.category(chr(code)) in CATEGORIES)


@lru_cache(maxsize=1)
def distinct_characters() -> tuple[str, ...]:
    """The characters with the look-alikes left out."""
    candidates = candidate_characters()
    alike = np.zeros((len(candidates), len(candidates)), dtype=bool)
    for face in _COMPARED:
        images = np.stack([
            _draw(face, c, 32) if ord(c) in _codes(face) else np.zeros(
                (32, 32), np.float32) for c in candidates
        ]).reshape(len(candidates), -1)
        product = images @ images.T
        energy = product.diagonal()
        difference = energy[:, None] + energy - 2 * product
        alike |= difference < _ALIKE * np.minimum(energy[:, None], energy)
    kept: list[int] = []
    for index in range(len(candidates)):
        if not alike[index, kept].any():
            kept.append(index)
    return tuple(candidates[index] for index in kept)


@lru_cache(maxsize=4096)
def render(character: str, size: int, seed: int) -> dict[str, np.ndarray]:
    """The instances of a character: face -> bytes of shape (size, size)."""
    faces = [face for face in FACES if ord(character) in _codes(face)]
    rng = np.random.default_rng((seed, ord(character)))
    images = torch.from_numpy(
        np.stack([_draw(face, character, size) for face in faces]))
    grid = F.affine_grid(
        torch.from_numpy(_distortions(rng, len(faces))),
        [len(faces), 1, size, size], align_corners=False)
    images = F.grid_sample(images[:, None], grid, align_corners=False)[:, 0]
    ink = rng.uniform(0.55, 1.0, (len(faces), 1, 1))
    paper = rng.uniform(0.0, 0.25, (len(faces), 1, 1))
    values = paper + (ink - paper) * images.numpy()
    values += rng.normal(0, _NOISE, values.shape)
    # dark on light, as printed
    pixels = np.rint(255 * (1 - values.clip(0, 1))).astype(np.uint8)
    return dict(zip(faces, pixels))


def _distortions(rng: np.random.Generator, number: int) -> np.ndarray:
    """Affine matrices, float32, shape (number, 2, 3)."""
    uniform = rng.uniform(-1, 1, (6, number))
    angle = np.deg2rad(_ROTATION * uniform[0])
    wide, high = 1 + _SCALE * uniform[1], 1 + _SCALE * uniform[2]
    shear = _SHEAR * uniform[3]
    matrix = np.empty((number, 2, 3), dtype=np.float32)
    matrix[:, 0, 0] = np.cos(angle) * wide
    matrix[:, 0, 1] = -np.sin(angle) * high + shear
    matrix[:, 1, 0] = np.sin(angle) * wide
    matrix[:, 1, 1] = np.cos(angle) * high
    matrix[:, :, 2] = 2 * _SHIFT * uniform[4:].T
    return matrix


def _draw(face: str, character: str, size: int) -> np.ndarray:
    """The undistorted ink in [0, 1], float32, shape (size, size)."""
    from PIL import Image, ImageDraw
    image = Image.new('L', (size, size))
    # one size and baseline for all, so that o and O stay apart
    ImageDraw.Draw(image).text(
        (size / 2, 0.72 * size), character, fill=255, font=_font(face, size),
        anchor='ms')
    return np.asarray(image, dtype=np.float32) / 255


@lru_cache(maxsize=64)
def _font(face: str, size: int) -> Any:
    from PIL import ImageFont
    # the basic layout: shaping by a further library would differ by machine
    return ImageFont.truetype(
        _path(face), round(0.62 * size), layout_engine=ImageFont.Layout.BASIC)


@lru_cache(maxsize=64)
def _codes(face: str) -> frozenset[int]:
    from matplotlib.ft2font import FT2Font
    return frozenset(FT2Font(_path(face)).get_charmap())


def _path(face: str) -> str:
    import matplotlib
    path = osp.join(
        matplotlib.get_data_path(), 'fonts', 'ttf', f'{face}.ttf')
    if not osp.exists(path):
        raise FileNotFoundError(
            f'matplotlib {matplotlib.__version__} lacks the font {path!r}, '
            'from which GlyphRetrieval is rendered; install matplotlib from '
            'its wheel')
    return path
