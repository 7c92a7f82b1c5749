"""Write PhotoPatches, in the formats of PhotoTour and of HPatches.

    python tools/dataset_converters/photo_patches.py data/photo_patches
"""

import argparse
import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.datasets.generators.photo_patches import write_photo_patches


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('out_dir')
    parser.add_argument('--keypoints-per-photo', type=int, default=160)
    parser.add_argument('--num-pairs', type=int, default=10000)
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    out = write_photo_patches(**vars(args))
    print(f'wrote {out}')


if __name__ == '__main__':
    main()
