"""Image loading, augmentation and packing of the retrieval half.

They need Pillow and torchvision only; mmcv's transforms work beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms import v2

from mmrank.registry import TRANSFORMS
from mmrank.structures import RetrievalDataSample


@TRANSFORMS.register_module()
class LoadImage:
    """Reads ``img_path`` into ``img``, a Pillow image.

    An ``img`` that is there already, as an array (H, W) or (H, W, 3) of
    bytes, is taken instead.

    Args:
        mode (str): Pillow's name of the colours: 'RGB', or 'L' for grey.
            Grey, palette and CMYK files are converted, 16 bits become 8,
            transparency is dropped, and what a camera's EXIF tag says is
            lying is turned upright.

    Raises:
        ValueError: naming the file, if it is damaged or no image.
        FileNotFoundError: naming the file, if it does not exist.
    """

    def __init__(self, mode: str = 'RGB') -> None:
        self.mode = mode

    def __call__(self, results: dict) -> dict:
        results = dict(results)
        if 'img' in results:
            image = Image.fromarray(results['img'])
        else:
            image = self._read(results['img_path'])
        results['img'] = image.convert(self.mode)
        results['ori_shape'] = (image.height, image.width)
        return results

    def _read(self, path: str) -> Image.Image:
        try:
            with Image.open(path) as image:
                image.load()  # a truncated file fails here, not later
                return _eight_bits(ImageOps.exif_transpose(image))
        except FileNotFoundError:
            raise FileNotFoundError(
                f'the image {path!r} does not exist; is the data set '
                'complete?') from None
        except (OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise ValueError(
                f'the image {path!r} cannot be read: {error}') from error


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


def _eight_bits(image: Image.Image) -> Image.Image:
    """Pillow's own conversion clips 16 bits instead of scaling them."""
    if not image.mode.startswith('I;16'):
        return image
    return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))


def _build(config: dict) -> Any:
    config = dict(config)
    name = config.pop('type', None)
    if not hasattr(v2, str(name)):
        raise ValueError(f'torchvision.transforms.v2 has no {name!r}')
    if isinstance(config.get('interpolation'), str):
        config['interpolation'] = v2.InterpolationMode(
            config['interpolation'])
    return getattr(v2, name)(**config)
