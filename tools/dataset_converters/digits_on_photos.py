"""Writes the embedded detection data set DigitsOnPhotos to disk."""

import argparse
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.datasets.generators.digits_on_photos import (
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    default = DigitsOnPhotosOptions()
    parser.add_argument(
        '--out-dir', default='data/digits_on_photos',
        help='the folder that gets VOC2007/')
    for split in ('train', 'val', 'test'):
        parser.add_argument(
            f'--num-{split}', type=int, default=default.images(split),
            help=f'images of the split {split}')
    parser.add_argument(
        '--image-size', type=int, default=default.image_size,
        help='width and height in pixels')
    parser.add_argument(
        '--digit-sizes', type=int, nargs=2, default=default.digit_sizes,
        metavar=('MIN', 'MAX'), help='height of a digit in pixels')
    parser.add_argument(
        '--max-digits', type=int, default=default.max_digits,
        help='most digits on an image')
    parser.add_argument('--seed', type=int, default=default.seed)
    return parser.parse_args()


def main() -> None:
    options = vars(parse_args())
    out_dir = options.pop('out_dir')
    options['digit_sizes'] = tuple(options['digit_sizes'])
    try:
        root = make_digits_on_photos(
            out_dir, DigitsOnPhotosOptions(**options))
    except (ValueError, FileExistsError, ModuleNotFoundError) as error:
        sys.exit(f'error: {error}')
    print(f'DigitsOnPhotos is in {root}')


if __name__ == '__main__':
    main()
