"""What is an image in a folder, and which picture is in a file.

One rule for training, evaluation, embedding, galleries and detection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import cv2
import numpy as np
from mmengine.logging import print_log
from PIL import Image, ImageOps

#: Names that file managers leave behind; those that begin with a dot, too.
LEFTOVERS = ('__MACOSX', 'Thumbs.db', 'desktop.ini')

# what Pillow opens though it is no picture of pixels
_NO_PICTURES = {'BUFR', 'EPS', 'FITS', 'GRIB', 'HDF5', 'MPEG', 'PDF', 'WMF'}
_SHOWN = 5
_logged: set[str] = set()
_limit_lock = threading.Lock()


@dataclass
class FoundImages:
    """The images under a folder, and what was left out.

    Attributes:
        folder (str): where the search began.
        images (list[str]): below it, sorted part by part.
        left_out (dict): reason -> names below it, in the order met.
    """

    folder: str
    images: list[str]
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, name: str, reason: str) -> None:
        """Count ``name`` as left out."""
        self.left_out.setdefault(reason, []).append(name)

    def log(self) -> None:
        """Say in one line what was left out; the same line only once."""
        if not self.left_out:
            return
        parts = []
        for reason, names in sorted(self.left_out.items()):
            shown = ', '.join(sorted(names)[:_SHOWN])
            more = ', ...' if len(names) > _SHOWN else ''
            parts.append(f'{len(names)} {reason} ({shown}{more})')
        line = f'left out of {self.folder!r}: {"; ".join(parts)}'
        if line not in _logged:
            _logged.add(line)
            print_log(line, logger='current')


@lru_cache(maxsize=1)
def image_suffixes() -> tuple[str, ...]:
    """Suffixes of every picture format that Pillow reads here, lower case."""
    Image.init()
    return tuple(sorted(
        suffix for suffix, kind in Image.registered_extensions().items()
        if kind in Image.OPEN and kind not in _NO_PICTURES))


def find_images(folder: str | os.PathLike,
                suffixes: Sequence[str] | None = None) -> FoundImages:
    """Every image under a folder.

    An image is a regular file with one of the suffixes, in upper or lower
    case. Hidden files and folders (``.x``, ``._x``) and :data:`LEFTOVERS`
    are neither images nor classes. Subfolders are searched to any depth.
    Links are followed, except those to a folder that holds them.

    Args:
        folder (path): where to search.
        suffixes (Sequence[str], optional): instead of
            :func:`image_suffixes`.

    Returns:
        FoundImages: the images, and by reason what was left out.

    Raises:
        FileNotFoundError: if there is no such folder.
        OSError: if a folder below may not be read, by its name.
    """
    folder = os.fspath(folder)
    if not os.path.isdir(folder):
        raise FileNotFoundError(f'there is no folder {folder!r}')
    wanted = tuple(one.lower() for one in suffixes or image_suffixes())
    found = FoundImages(folder, [])
    _walk(found, '', wanted, frozenset([os.path.realpath(folder)]))
    found.images.sort(key=lambda name: name.split(os.sep))
    return found


def list_images(folder: str | os.PathLike) -> list[str]:
    """All image files under a folder, sorted, as paths that begin with it.

    Args:
        folder (path): searched as by :func:`find_images`.

    Returns:
        list[str]: paths; empty if there is no image. A log line names what
        was left out.

    Raises:
        FileNotFoundError: if there is no such folder.
    """
    found = find_images(folder)
    found.log()
    return [os.path.join(found.folder, name) for name in found.images]


def read_image(path: str | os.PathLike,
               mode: str = 'RGB',
               max_pixels: int | None = None) -> Image.Image:
    """The picture in a file, as a person sees it.

    It is turned upright as its EXIF block says (one that is damaged says
    nothing), what is transparent shows white, of several frames the first
    is taken. 16-bit grey is divided by 257, floats in [0, 1] are multiplied
    by 255, and rounded.

    Args:
        path (path): the file.
        mode (str): Pillow's name of the colours: 'RGB', or 'L' for grey.
        max_pixels (int, optional): refuse larger pictures; by default
            what Pillow refuses, twice ``PIL.Image.MAX_IMAGE_PIXELS``.

    Raises:
        FileNotFoundError: naming the file, if it does not exist.
        ValueError: naming the file, if it is damaged, no picture, too large,
            or its values have another range; they are never clipped.

    Example:
        >>> read_image('photo.tif').mode             # doctest: +SKIP
        'RGB'
    """
    path = os.fspath(path)
    try:
        with _open(path, max_pixels) as image:
            image.load()  # a truncated file fails here, not later
            return _visible(_upright(image), image.format).convert(mode)
    except FileNotFoundError:
        raise FileNotFoundError(
            f'the image {path!r} does not exist; is the data set '
            'complete?') from None
    # decoders raise whatever they like for bytes that are no image
    except Exception as error:
        why = 'the file is empty' if _is_empty(path) else error
        raise ValueError(
            f'the image {path!r} cannot be read: {why}') from error


def read_grey(path: str | os.PathLike) -> np.ndarray | None:
    """A grey picture of 8 bit, such as a mosaic of patches.

    Returns:
        ndarray, optional: shape (H, W), uint8; None where OpenCV cannot read
        the file, whatever its reason.
    """
    try:
        return cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    except cv2.error:  # a damaged header
        return None


def _walk(found: FoundImages, below: str, suffixes: tuple[str, ...],
          above: frozenset[str]) -> None:
    """Search one folder; ``above`` are the real paths that lead to it."""
    for name in sorted(os.listdir(os.path.join(found.folder, below))):
        inner = os.path.join(below, name)
        path = os.path.join(found.folder, inner)
        if name.startswith('.') or name in LEFTOVERS:
            found.leave_out(inner, 'hidden')
        elif os.path.isdir(path):
            real = os.path.realpath(path)
            if real in above:
                found.leave_out(inner, 'linked in a circle')
            else:
                _walk(found, inner, suffixes, above | {real})
        elif not os.path.exists(path):
            found.leave_out(inner, 'linked to nothing')
        elif name.lower().endswith(suffixes) and os.path.isfile(path):
            found.images.append(inner)
        else:
            found.leave_out(inner, 'no image')


def _open(path: str, max_pixels: int | None) -> Image.Image:
    with _without_limit() as default:
        image = Image.open(path)
    limit = max_pixels or default
    if limit is not None and image.width * image.height > limit:
        size = f'{image.width} x {image.height}'
        image.close()
        raise ValueError(
            f'{size} pixels are more than the limit of {limit}, which keeps '
            'small files from filling the memory; if you trust it, give '
            'LoadImage max_pixels, or set PIL.Image.MAX_IMAGE_PIXELS, of '
            'which the limit is twice')
    return image


@contextmanager
def _without_limit() -> Iterator[int | None]:
    """Pillow's limit as a number instead of an error without a remedy."""
    with _limit_lock:
        pillows = Image.MAX_IMAGE_PIXELS
        Image.MAX_IMAGE_PIXELS = None
        try:
            yield None if pillows is None else 2 * pillows
        finally:
            Image.MAX_IMAGE_PIXELS = pillows


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    # the pixels are whole: a damaged EXIF block says nothing about them
    except Exception:
        return image


def _visible(image: Image.Image, file_format: str | None) -> Image.Image:
    """8 bits a channel, without transparency."""
    if image.mode.startswith('I;16') or (
            # 16 bits, too, as Pillow hands them on for these formats
            image.mode == 'I' and file_format in ('PNG', 'PPM')):
        return _bytes((np.asarray(image).astype(np.int64) + 128) // 257)
    if image.mode in ('I', 'F'):
        return _unit_range(np.asarray(image))
    if image.has_transparency_data:
        image = image.convert('RGBA')
        white = Image.new('RGBA', image.size, 'white')
        return Image.alpha_composite(white, image)
    return image


def _unit_range(values: np.ndarray) -> Image.Image:
    low, high = values.min(), values.max()
    if values.dtype.kind == 'f' and low >= 0 and high <= 1:
        return _bytes(np.rint(values * 255))
    raise ValueError(
        f'its {values.dtype} values reach from {low} to {high}, and nothing '
        'says which of them is white; save it with 8 or 16 bits, or with '
        'floats in [0, 1]')


def _bytes(values: np.ndarray) -> Image.Image:
    return Image.fromarray(values.astype(np.uint8))


def _is_empty(path: str) -> bool:
    return os.path.isfile(path) and os.path.getsize(path) == 0
