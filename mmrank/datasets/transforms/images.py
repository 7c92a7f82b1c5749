"""Image loading, augmentation and packing of the retrieval half.

They need Pillow and torchvision only; mmcv's transforms work beside them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from mmengine.logging import print_log
from PIL import Image
from torchvision.transforms import v2

from mmrank.files.images import read_image
from mmrank.registry import TRANSFORMS
from mmrank.structures import RetrievalDataSample


@TRANSFORMS.register_module()
class LoadImage:
    """Reads ``img_path`` into ``img``, a Pillow image.

    Files are read by :func:`mmrank.files.images.read_image`: the picture
    that a person sees, or an error. An ``img`` that is there already, as an
    array (H, W) or (H, W, 3) of bytes, is taken instead.

    Args:
        mode (str): Pillow's name of the colours: 'RGB', or 'L' for grey.
        max_pixels (int, optional): refuse larger pictures; by default
            Pillow's own limit.
        skip_corrupt (bool): in training, take a random other item for a file
            that cannot be read, and count it in a log line, instead of
            raising. Balanced batches are then no longer balanced; in
            evaluation such a file is an error all the same.

    Raises:
        ValueError: naming the file and the item, if it cannot be read.
        FileNotFoundError: naming the file and the item, if it does not
            exist.
    """

    def __init__(self,
                 mode: str = 'RGB',
                 max_pixels: int | None = None,
                 skip_corrupt: bool = False) -> None:
        self.mode = mode
        self.max_pixels = max_pixels
        self.skip_corrupt = skip_corrupt
        self._skipped: set[str] = set()

    def __call__(self, results: dict) -> Any:
        results = dict(results)
        if 'img' in results:
            image = Image.fromarray(results['img']).convert(self.mode)
        else:
            try:
                image = self._read(results)
            except (ValueError, OSError) as error:
                if not self.skip_corrupt:
                    raise
                return self._skip(results['img_path'], error)
        results['img'] = image
        results['ori_shape'] = (image.height, image.width)
        return results

    def _read(self, results: dict) -> Image.Image:
        try:
            return read_image(
                results['img_path'], self.mode, self.max_pixels)
        except (ValueError, FileNotFoundError) as error:
            if 'sample_idx' not in results:
                raise
            raise type(error)(
                f'item {results["sample_idx"]}: {error}') from error

    def _skip(self, path: str, error: Exception) -> None:
        if path not in self._skipped:
            self._skipped.add(path)
            print_log(
                f'skipped, {len(self._skipped)} so far in this process: '
                f'{error}', logger='current', level=logging.WARNING)


@TRANSFORMS.register_module()
class ImageTransforms:
    """torchvision's transforms on ``img``, in order.

    Args:
        transforms (Sequence[dict]): each names a class of
            ``torchvision.transforms.v2`` as ``type`` and its arguments;
            ``interpolation`` may be given by name, as 'bicubic'.

    Example:
        >>> resize = ImageTransforms([dict(type='Resize', size=8)])
        >>> from PIL import Image, ImageOps
        >>> resize(dict(img=Image.new('RGB', (16, 16))))['img'].size
        (8, 8)
    """

    def __init__(self, transforms: Sequence[dict]) -> None:
        self.transforms = v2.Compose([_build(one) for one in transforms])

    def __call__(self, results: dict) -> dict:
        results['img'] = self.transforms(results['img'])
        return results


@TRANSFORMS.register_module()
class PackRetrievalInputs:
    """An image and its facts as a model takes them.

    ``inputs`` is the image as bytes, shape (channels, H, W);
    ``data_samples`` a :class:`mmrank.structures.RetrievalDataSample` with
    the label and, as meta fields, those of ``meta_keys`` that are known.
    """

    def __init__(self,
                 meta_keys: Sequence[str] = ('sample_idx', 'img_path',
                                             'super_label', 'is_query',
                                             'file_id',
                                             'ori_shape')) -> None:
        self.meta_keys = tuple(meta_keys)

    def __call__(self, results: dict) -> dict:
        image = results['img']
        if not isinstance(image, torch.Tensor):
            array = np.array(image)
            if array.ndim == 2:
                array = array[..., None]
            image = torch.from_numpy(array).permute(2, 0, 1).contiguous()
        sample = RetrievalDataSample(metainfo={
            key: results[key] for key in self.meta_keys if key in results})
        if 'gt_label' in results:
            sample.set_gt_label(results['gt_label'])
        return dict(inputs=image, data_samples=sample)


def _build(config: dict) -> Any:
    config = dict(config)
    name = config.pop('type', None)
    if not hasattr(v2, str(name)):
        raise ValueError(f'torchvision.transforms.v2 has no {name!r}')
    if isinstance(config.get('interpolation'), str):
        config['interpolation'] = v2.InterpolationMode(
            config['interpolation'])
    return getattr(v2, name)(**config)
