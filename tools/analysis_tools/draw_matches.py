"""Match the Middlebury motorcycle pair that scikit-image ships, and draw it.

    python tools/analysis_tools/draw_matches.py CONFIG CHECKPOINT matches.png

A match is right if it ends within 3 pixels of where the ground-truth
disparity puts it; keypoints without disparity are left out. SIFT on the same
keypoints is printed beside it.
"""

import argparse
import sys
from pathlib import Path

import cv2
import numpy as np
from torch import nn

if __package__ is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from mmrank.apis.describe import describe, init_descriptor, match
from mmrank.datasets.transforms import detect_keypoints


def stereo_pair() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Left and right, grey uint8, and the left image's disparity."""
    from skimage.data import stereo_motorcycle
    left, right, disparity = stereo_motorcycle()
    grey = [cv2.cvtColor(np.ascontiguousarray(side), cv2.COLOR_RGB2GRAY)
            for side in (left, right)]
    return *grey, disparity


def keypoints_of(image: np.ndarray, count: int) -> np.ndarray:
    """x, y, size; size as :func:`describe` takes it."""
    points = detect_keypoints(image, count, border=1.)
    # half sides are 5 sigma, patches are 5 sizes wide
    return points * [1, 1, 2 / 5]


def right_matches(matches: np.ndarray, left: np.ndarray, right: np.ndarray,
                  disparity: np.ndarray, tolerance: float) -> np.ndarray:
    """Whether each match is right; bool. NaN disparity counts as wrong."""
    ends = left[matches[:, 0], :2], right[matches[:, 1], :2]
    column, row = ends[0].round().astype(int).T
    shift = disparity[row, column]
    target = ends[0] - np.stack([shift, np.zeros_like(shift)], 1)
    return np.linalg.norm(target - ends[1], axis=1) <= tolerance


def evaluate(model: nn.Module, count: int = 600,
             tolerance: float = 3.) -> dict:
    """Matches of the pair, which of them are right, and what was possible."""
    *images, disparity = stereo_pair()
    disparity = np.where(np.isfinite(disparity), disparity, np.nan)
    points = [keypoints_of(image, count) for image in images]
    column, row = points[0][:, :2].round().astype(int).T
    points[0] = points[0][np.isfinite(disparity[row, column])]
    rows = [describe(image, p, model) for image, p in zip(images, points)]
    matches = match(*rows)
    return dict(images=images, points=points, matches=matches,
                right=right_matches(matches, *points, disparity, tolerance))


def draw(result: dict, path: Path, most: int = 150) -> None:
    """The nearest matches: right ones green, wrong ones red."""
    left, right = result['images']
    canvas = cv2.cvtColor(np.hstack([left, right]), cv2.COLOR_GRAY2BGR)
    for (a, b), good in list(zip(result['matches'], result['right']))[:most]:
        start = result['points'][0][a, :2].round().astype(int)
        end = result['points'][1][b, :2].round().astype(int)
        end = end + [left.shape[1], 0]
        colour = (0, 200, 0) if good else (0, 0, 230)
        cv2.line(canvas, start.tolist(), end.tolist(), colour, 1, cv2.LINE_AA)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), canvas):
        raise OSError(f'cannot write {path}')


def _say(name: str, result: dict) -> None:
    right, total = int(result['right'].sum()), len(result['matches'])
    print(f'{name}: {right} of {total} mutual matches are right '
          f'({100 * right / max(total, 1):.1f} %)')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('config')
    parser.add_argument('checkpoint')
    parser.add_argument('out', type=Path)
    parser.add_argument('--keypoints', type=int, default=600)
    args = parser.parse_args()
    model = init_descriptor(args.config, args.checkpoint)
    result = evaluate(model, args.keypoints)
    draw(result, args.out)
    _say('model', result)
    sift = init_descriptor(
        str(Path(__file__).resolve().parents[2]
            / 'configs/adasample/sift_photo-patches.py'))
    _say('SIFT', evaluate(sift, args.keypoints))
    print(f'wrote {args.out}')


if __name__ == '__main__':
    main()
