"""Keypoints of a photograph, and the patches around them."""

from __future__ import annotations

import cv2
import numpy as np


def detect_keypoints(image: np.ndarray, count: int,
                     border: float = 1.35) -> np.ndarray:
    """Blobs by difference of Gaussians, spread over the image.

    Args:
        image (ndarray): grey, uint8.
        count (int): at most so many.
        border (float): the patch, enlarged so much, lies inside the image.

    Returns:
        ndarray: float64, shape (n, 3): x, y, half side of the patch; n may
        be 0.
    """
    from skimage.feature import blob_dog
    blobs = blob_dog(image / 255., min_sigma=1.6, max_sigma=12,
                     threshold=.02, overlap=.4)
    y, x, sigma = blobs.T if len(blobs) else np.zeros((3, 0))
    half = np.clip(5 * sigma, 10, None)
    height, width = image.shape
    margin = border * half * np.sqrt(2)
    inside = ((x >= margin) & (y >= margin) & (x < width - margin)
              & (y < height - margin))
    points = np.stack([x, y, half], 1)[inside]
    # blob_dog sorts by scale: an even choice keeps all scales
    if len(points) > count:
        points = points[np.linspace(0, len(points) - 1, count).astype(int)]
    return points


def cut_patch(pyramid: list[np.ndarray], frame: np.ndarray,
              size: int) -> np.ndarray:
    """The patch that ``frame`` maps the square [-1, 1]^2 to."""
    corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float64)
    ends = cv2.perspectiveTransform(corners[None], frame)[0]
    span = np.linalg.norm(ends[0] - ends[2]) / np.sqrt(2)
    level = int(np.clip(np.floor(np.log2(max(span / size, 1))), 0,
                        len(pyramid) - 1))
    last = size - 1
    pixels = np.array([[0, 0], [last, 0], [last, last], [0, last]])
    shrink = 2.**level
    source = ((ends + .5) / shrink - .5).astype(np.float32)
    warp = cv2.getPerspectiveTransform(source, pixels.astype(np.float32))
    return cv2.warpPerspective(pyramid[level], warp, (size, size),
                               flags=cv2.INTER_LINEAR,
                               borderMode=cv2.BORDER_REFLECT_101)


def build_pyramid(image: np.ndarray, levels: int = 5) -> list[np.ndarray]:
    """The image and its halves, smoothed before each halving."""
    pyramid = [image]
    while len(pyramid) < levels and min(pyramid[-1].shape) > 32:
        pyramid.append(cv2.pyrDown(pyramid[-1]))
    return pyramid


def keypoint_frame(x: float, y: float, half: float,
                   angle: float = 0.) -> np.ndarray:
    """The map of [-1, 1]^2 to the keypoint's square (angle in degrees)."""
    c, s = np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))
    return np.array([[half * c, -half * s, x], [half * s, half * c, y],
                     [0, 0, 1.]])
