from .images import ImageTransforms, LoadImage, PackRetrievalInputs
from .keypoint_patches import (
    build_pyramid,
    cut_patch,
    detect_keypoints,
    keypoint_frame,
)

__all__ = [
    'ImageTransforms', 'LoadImage', 'PackRetrievalInputs', 'build_pyramid',
    'cut_patch', 'detect_keypoints', 'keypoint_frame'
]
