"""Pictures of DigitsOnPhotos: digits, letters and slips on photographs."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = ('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven',
           'eight', 'nine')

# The photographs inside the wheel (the rest of skimage.data is fetched over
# the network). Those that show written text, and charts, are left out.
PHOTOS = {
    'train': ('astronaut.png', 'brick.png', 'camera.png', 'chelsea.png',
              'coins.png', 'grass.png', 'ihc.png', 'moon.png',
              'motorcycle_left.png'),
    'val': ('cell.png', 'gravel.png'),
    'test': ('coffee.png', 'hubble_deep_field.jpg', 'retina.jpg',
             'rocket.jpg'),
}
SPLITS = tuple(PHOTOS)

# letters and signs; those in the second part look much like a digit, and
# O, I, l, g and q, which are drawn as one, are left out
GLYPHS = 'AEFHKMNPRTUVWXYadefhkmnprtuvwxy&@#%?' + 2 * 'BGJSZbsz'

Array = np.ndarray[Any, Any]
Box = tuple[int, int, int, int]


@dataclass(frozen=True)
class DigitsOnPhotosOptions:
    """What the pixels depend on; equal options give equal bytes.

    Args:
        num_train (int): Images of the split ``train``, > 0.
        num_val (int): Images of the split ``val``, > 0.
        num_test (int): Images of the split ``test``, > 0.
        image_size (int): Width and height of an image in pixels, at least
            twice the largest digit.
        digit_sizes (tuple[int, int]): Smallest and largest height of a digit
            in pixels, 8 <= smallest <= largest.
        max_digits (int): Most digits on an image, > 0.
        seed (int): Seed of everything random, >= 0.

    Raises:
        ValueError: An option is out of range.
    """

    num_train: int = 1200
    num_val: int = 200
    num_test: int = 400
    image_size: int = 128
    digit_sizes: tuple[int, int] = (14, 44)
    max_digits: int = 6
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ('num_train', 'num_val', 'num_test', 'max_digits'):
            if getattr(self, name) < 1:
                raise ValueError(
                    f'{name} must be at least 1, got {getattr(self, name)}')
        if self.seed < 0:
            raise ValueError(f'seed must not be negative, got {self.seed}')
        if len(self.digit_sizes) != 2 or not (
                8 <= self.digit_sizes[0] <= self.digit_sizes[1]):
            raise ValueError(
                'digit_sizes must be (smallest, largest) with 8 <= smallest '
                f'<= largest, got {self.digit_sizes}')
        if self.image_size < 2 * self.digit_sizes[1]:
            raise ValueError(
                f'image_size {self.image_size} is too small for digits of '
                f'{self.digit_sizes[1]} pixels: at least '
                f'{2 * self.digit_sizes[1]} is needed')

    def images(self, split: str) -> int:
        """The number of images of a split."""
        return {'train': self.num_train, 'val': self.num_val,
                'test': self.num_test}[split]


@dataclass(frozen=True)
class Digit:
    """One annotated object; the box is half-open, in 0-based pixels."""

    label: int
    box: Box
    truncated: bool
    difficult: bool


def split_scans(labels: Array, seed: int) -> dict[str, Array]:
    """Disjoint indices of the scans for train, val and test.

    Args:
        labels (ndarray): The class of each scan, shape (N,).
        seed (int): Decides which scan goes where.

    Returns:
        dict[str, ndarray]: Sorted indices; of every class 60 % of the scans
        go to ``train``, 15 % to ``val`` and the others to ``test``.

    Examples:
        >>> parts = split_scans(np.repeat(np.arange(10), 20), seed=0)
        >>> [len(parts[split]) for split in ('train', 'val', 'test')]
        [120, 30, 50]
    """
    rng = np.random.default_rng([seed, 0])
    parts: dict[str, list[Array]] = {split: [] for split in SPLITS}
    for label in np.unique(labels):
        order = rng.permutation(np.flatnonzero(labels == label))
        ends = [round(0.6 * len(order)), round(0.75 * len(order))]
        for split, part in zip(SPLITS, np.split(order, ends)):
            parts[split].append(part)
    return {s: np.sort(np.concatenate(p)) for s, p in parts.items()}


class DigitPainter:
    """Draws the images of one split."""

    def __init__(self, options: DigitsOnPhotosOptions, split: str) -> None:
        self.options = options
        self.split = split
        scans, labels = _load_scans()
        keep = split_scans(labels, options.seed)[split]
        self.scans, self.labels = scans[keep], labels[keep]
        self.photos = [_load_photo(name) for name in PHOTOS[split]]
        self.glyphs = _load_glyphs()

    def paint(self, index: int) -> tuple[Array, list[Digit]]:
        """An image (H, W, 3) uint8 and its annotated digits."""
        # a generator of its own for each image: the k-th image does not
        # depend on how many there are
        rng = np.random.default_rng(
            [self.options.seed, 1 + SPLITS.index(self.split), index])
        image = self._background(rng)
        taken: list[Box] = []
        for _ in range(rng.integers(2, 6)):
            self._paint_glyph(rng, image, taken)
        digits = []
        for _ in range(rng.integers(2, self.options.max_digits + 1)
                       if self.options.max_digits > 1 else 1):
            digit = self._paint_digit(rng, image, taken)
            if digit is not None:
                digits.append(digit)
        noise = rng.normal(0, rng.uniform(0, 12), image.shape)
        return np.clip(image + noise, 0, 255).astype(np.uint8), digits

    def _crop(self, rng: np.random.Generator, side: int,
              zoom: tuple[float, float]) -> Array:
        """A square piece of one of the photographs, (side, side, 3)."""
        import cv2
        photo = self.photos[rng.integers(len(self.photos))]
        longest = min(photo.shape[:2])
        window = int(np.clip(side * rng.uniform(*zoom), 8, longest))
        y = rng.integers(photo.shape[0] - window + 1)
        x = rng.integers(photo.shape[1] - window + 1)
        piece = photo[y:y + window, x:x + window, ::rng.choice([1, -1])]
        if rng.random() < 0.5:
            piece = piece[:, ::-1]
        return cv2.resize(np.ascontiguousarray(piece), (side, side),
                          interpolation=cv2.INTER_AREA).astype(np.float32)

    def _background(self, rng: np.random.Generator) -> Array:
        image = self._crop(rng, self.options.image_size, (1.0, 3.0))
        gain, shift = rng.uniform(0.6, 1.1), rng.uniform(-20, 30)
        image = np.clip(image * gain + shift, 0, 255)
        for _ in range(rng.integers(0, 3)):
            # a piece of another photograph: edges that bound no object
            side = int(rng.integers(12, self.options.image_size // 3))
            y, x = rng.integers(self.options.image_size - side, size=2)
            image[y:y + side, x:x + side] = self._crop(rng, side, (1.0, 4.0))
        return image

    def _paint_glyph(self, rng: np.random.Generator, image: Array,
                     taken: list[Box]) -> None:
        glyph = self.glyphs[rng.integers(len(self.glyphs))]
        ink = _ink(rng, glyph, self._size(rng))
        place = _place(rng, image.shape[0], ink.shape, taken)
        if place is not None:
            taken.append(place)
            _blend(rng, image, ink, place)

    def _paint_digit(self, rng: np.random.Generator, image: Array,
                     taken: list[Box]) -> Digit | None:
        label = int(rng.integers(len(CLASSES)))
        scan = rng.choice(np.flatnonzero(self.labels == label))
        ink = _ink(rng, self.scans[scan], self._size(rng))
        box = _place(rng, image.shape[0], ink.shape, taken)
        if box is None:
            return None
        taken.append(box)
        contrast = _blend(rng, image, ink, box)
        hidden = self._occlude(rng, image, ink, box)
        return Digit(label, box, truncated=hidden > 0,
                     difficult=hidden > 0.4 or contrast < 35)

    def _occlude(self, rng: np.random.Generator, image: Array, ink: Array,
                 box: Box) -> float:
        """Hides one side of some digits; returns the share of ink hidden."""
        if rng.random() > 0.25:
            return 0.0
        x1, y1, x2, y2 = box
        height, width = ink.shape
        share = rng.uniform(0.15, 0.5)
        cut = [slice(None), slice(None)]
        axis, far = rng.integers(2), rng.random() < 0.5
        length = (height, width)[axis]
        depth = max(1, round(share * length))
        cut[axis] = slice(length - depth, None) if far else slice(0, depth)
        cover = self._crop(rng, max(height, width), (1.0, 3.0))
        patch = cover[:height, :width][tuple(cut)]
        image[y1:y2, x1:x2][tuple(cut)] = patch
        return float(ink[tuple(cut)].sum() / ink.sum())

    def _size(self, rng: np.random.Generator) -> float:
        low, high = self.options.digit_sizes
        return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _ink(rng: np.random.Generator, scan: Array, size: float) -> Array:
    """The opacity of a jittered scan, cut to its strokes, in [0, 1].

    The scan (8, 8) is enlarged smoothly, turned, stretched and given crisp
    edges; ``size`` is the height of the upright scan in pixels.
    """
    import cv2
    low, high = size, size * rng.uniform(0.8, 1.1)
    angle = np.deg2rad(rng.uniform(-30, 30))
    reach = int(np.ceil(1.5 * max(low, high)))
    rotation = np.array([[np.cos(angle), -np.sin(angle)],
                         [np.sin(angle), np.cos(angle)]])
    scale = rotation @ np.diag([high / 8, low / 8])
    offset = reach / 2 - scale @ np.array([3.5, 3.5])
    ink = cv2.warpAffine(
        scan, np.hstack([scale, offset[:, None]]), (reach, reach),
        flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_CONSTANT, borderValue=0)
    edge = np.clip((ink - 0.3) / 0.35, 0, 1)
    edge = edge * edge * (3 - 2 * edge)
    rows = np.flatnonzero((edge > 0.3).any(axis=1))
    columns = np.flatnonzero((edge > 0.3).any(axis=0))
    return edge[rows[0]:rows[-1] + 1, columns[0]:columns[-1] + 1]


def _place(rng: np.random.Generator, side: int, shape: Sequence[int],
           taken: list[Box], tries: int = 20) -> Box | None:
    """A box of ``shape`` inside the image, clear of those taken, if any."""
    height, width = shape
    for _ in range(tries):
        x = int(rng.integers(side - width + 1))
        y = int(rng.integers(side - height + 1))
        box = (x, y, x + width, y + height)
        if not any(x < right and left < box[2] and y < low and top < box[3]
                   for left, top, right, low in taken):
            return box
    return None


def _blend(rng: np.random.Generator, image: Array, ink: Array,
           box: Box) -> float:
    """Writes ink on the image, in place; returns the contrast in grey levels.

    The ink is lighter or darker than what it is written on. Now and then
    it is written on a slip of paper laid over the photograph.
    """
    x1, y1, x2, y2 = box
    if rng.random() < 0.25:
        pad = int(rng.integers(1, 5))
        rows, columns = slice(max(y1 - pad, 0), y2 + pad), slice(
            max(x1 - pad, 0), x2 + pad)
        paper = rng.uniform(40, 230) + rng.uniform(-25, 25, 3)
        image[rows, columns] += rng.uniform(0.5, 0.95) * (
            paper - image[rows, columns])
    patch = image[y1:y2, x1:x2]
    ground = patch.mean()
    contrast = rng.uniform(25, 110)
    # towards the side that has room for the contrast, mostly
    sign = 1 if ground < 255 * rng.uniform(0.3, 0.7) else -1
    target = np.clip(ground + sign * contrast, 0, 255)
    colour = np.clip(target + rng.uniform(-25, 25, 3), 0, 255)
    patch += (ink * rng.uniform(0.8, 1.0))[..., None] * (colour - patch)
    return float(abs(target - ground))


def _load_scans() -> tuple[Array, Array]:
    """The scans (N, 8, 8) in [0, 1] and their classes (N,)."""
    from sklearn.datasets import load_digits
    digits = load_digits()
    return (digits.images / 16).astype(np.float32), digits.target


def _load_photo(name: str) -> Array:
    """A photograph (H, W, 3), uint8, in OpenCV's order of channels."""
    import cv2
    import skimage
    path = Path(skimage.__file__).parent / 'data' / name
    version = getattr(skimage, '__version__', 'unknown')
    photo = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if photo is None:
        raise FileNotFoundError(
            f'{path} cannot be read; it is part of scikit-image '
            f'(found {version}): reinstall it with '
            '`pip install --force-reinstall --no-deps scikit-image`')
    return photo


def _load_glyphs() -> list[Array]:
    """Letters and signs, as coarse (8, 8) as the scans, in [0, 1]."""
    import cv2
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont
    fonts = Path(matplotlib.get_data_path()) / 'fonts' / 'ttf'
    glyphs = []
    for font_name in ('DejaVuSans.ttf', 'DejaVuSerif-Italic.ttf'):
        font = ImageFont.truetype(str(fonts / font_name), 64)
        for character in GLYPHS:
            canvas = Image.new('L', (128, 128))
            ImageDraw.Draw(canvas).text((24, 24), character, 255, font=font)
            canvas = canvas.crop(canvas.getbbox())
            side = max(canvas.size)
            square = Image.new('L', (side, side))
            square.paste(canvas, ((side - canvas.width) // 2, 0))
            coarse = cv2.resize(
                np.asarray(square), (8, 8), interpolation=cv2.INTER_AREA)
            glyphs.append(coarse.astype(np.float32) / max(coarse.max(), 1))
    return glyphs
