"""Embed images with a trained model: paths or arrays in, (N, D) out."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from mmengine.config import Config
from mmengine.dataset import Compose, pseudo_collate
from mmengine.registry import DefaultScope
from mmengine.utils import ProgressBar
from torch.utils.data import DataLoader, Dataset

from mmrank.datasets import LoadImage
from mmrank.files import load_weights
from mmrank.registry import MODELS

Image = str | os.PathLike | np.ndarray


class EmbeddingExtractor:
    """A model that embeds images, built from a config and a checkpoint.

    Images run through the test pipeline of the config, so an embedding is
    the one that the evaluation saw.

    Args:
        config (path | Config | dict): a metric-learning config.
        checkpoint (path, optional): weights; without one the model keeps the
            weights that it was built with, random ones, until
            ``extractor.model.init_weights()`` loads those that the config
            names.
        device (str): where the model runs; 'auto' is the first GPU, or the
            CPU where there is none.

    Raises:
        FileNotFoundError: if the config or the checkpoint does not exist.
        ValueError: if the config has no model or no test pipeline, or if
            the checkpoint lacks weights that the embedding needs.

    Example:
        >>> extractor = EmbeddingExtractor(
        ...     'config.py', 'epoch_40.pth')                # doctest: +SKIP
        >>> extractor(['a.jpg', 'b.jpg']).shape             # doctest: +SKIP
        (2, 512)
    """

    def __init__(self,
                 config: str | os.PathLike | Config | dict,
                 checkpoint: str | os.PathLike | None = None,
                 device: str = 'auto') -> None:
        self.config = _read_config(config)
        if device == 'auto':
            device = 'cuda' if torch.cuda.is_available() else 'cpu'
        self.device = torch.device(device)
        scope = self.config.get('default_scope', 'mmrank')
        with DefaultScope.overwrite_default_scope(scope):
            self.model = MODELS.build(self.config.model)
            transforms = Compose(_test_pipeline(self.config)).transforms
        self.dataset_meta: dict[str, Any] = {}
        if checkpoint is not None:
            self._load(os.fspath(checkpoint))
        self.model.to(self.device).eval()
        self._load_image, self._prepare = _split(transforms)
        self._embedding_dim: int | None = None
        self._model_id = ''

    @property
    def embedding_dim(self) -> int:
        """Width D of the embeddings."""
        if self._embedding_dim is None:
            blank = np.zeros((32, 32, 3), np.uint8)
            self._embedding_dim = self([blank], progress=False).shape[1]
        return self._embedding_dim

    @property
    def model_id(self) -> str:
        """A digest of the weights: equal embeddings have equal ids.

        :class:`GallerySearch` keeps it, so that a gallery of one model is
        not searched with the embeddings of another.
        """
        if not self._model_id:
            digest = hashlib.sha256()
            for name, value in _needed_weights(self.model).items():
                digest.update(name.encode())
                digest.update(value.detach().cpu().contiguous().reshape(
                    -1).view(torch.uint8).numpy().tobytes())
            self._model_id = digest.hexdigest()[:16]
        return self._model_id

    def __call__(self,
                 images: Image | Sequence[Image],
                 *,
                 batch_size: int = 32,
                 channel_order: str = 'bgr',
                 num_workers: int = 0,
                 progress: bool = True) -> np.ndarray:
        """Embed images.

        Args:
            images (sequence): paths, or uint8 arrays of shape (H, W, 3) or
                (H, W), of any size each; a single one is a sequence of one.
            batch_size (int): images a forward pass.
            channel_order (str): of arrays with three channels, 'bgr' (as
                OpenCV and mmcv read files) or 'rgb' (as PIL does). Files are
                not concerned.
            num_workers (int): processes that read and prepare images.
            progress (bool): show a bar with an estimate of the time left, on
                the standard error stream.

        Returns:
            np.ndarray: (N, D) float32, in the order of ``images``; (0, D)
            for no images.

        Raises:
            FileNotFoundError: naming the first file that does not exist,
                before anything is computed.
            ValueError: naming a file that is no readable image, or an array
                of another shape or dtype.
        """
        images = _as_list(images)
        _check(images, batch_size, channel_order)
        if not images:
            return np.zeros((0, self.embedding_dim), np.float32)
        loader = DataLoader(
            _Prepared(images, self._one_image(channel_order)),
            batch_size=batch_size,
            num_workers=num_workers,
            collate_fn=pseudo_collate)
        bar = ProgressBar(len(images), file=sys.stderr) if progress else None
        embeddings = []
        for batch in loader:
            embeddings.append(self._embed(batch))
            if bar is not None:
                bar.update(len(embeddings[-1]))
        if bar is not None:
            bar.file.write('\n')
        return np.concatenate(embeddings)

    @torch.no_grad()
    def _embed(self, batch: dict) -> np.ndarray:
        samples = self.model.test_step(batch)
        rows = [sample.pred_embedding.float().cpu() for sample in samples]
        return torch.stack(rows).numpy()

    def _one_image(self, channel_order: str) -> Callable[[Image, int], dict]:
        return _OneImage(self._load_image, self._prepare, channel_order)

    def _load(self, checkpoint: str) -> None:
        # what does not fit is said below, in one error
        loaded = load_weights(self.model, checkpoint, logger='silent')
        weights = loaded.get('state_dict', loaded)
        shapes = {
            name.removeprefix('module.'): value.shape
            for name, value in weights.items() if hasattr(value, 'shape')
        }
        lacking = [
            name for name, value in _needed_weights(self.model).items()
            if shapes.get(name) != value.shape
        ]
        if lacking:
            raise ValueError(
                f'{checkpoint!r} does not fit the config: {len(lacking)} '
                'weights are missing or of another shape, among them '
                f'{lacking[:3]}; give the config it was trained with')
        self.dataset_meta = loaded.get('meta', {}).get('dataset_meta') or {}


class _OneImage:
    """Path or array to the model's input; picklable for loader processes."""

    def __init__(self, load: Any, prepare: Compose,
                 channel_order: str) -> None:
        self.load = load
        self.prepare = prepare
        self.channel_order = channel_order

    def __call__(self, image: Image, index: int) -> dict:
        # packing steps like mmdet's insist on a label; no embedding reads it
        results: dict[str, Any] = {'sample_idx': index, 'gt_label': 0}
        if isinstance(image, np.ndarray):
            results.update(img_path='', **self._from_array(image))
        else:
            results['img_path'] = os.fspath(image)
            results = self._from_file(results)
        return self.prepare(results)

    def _from_file(self, results: dict) -> dict:
        path = results['img_path']
        try:
            loaded = self.load(results)
        # decoders raise whatever they like for bytes that are no image
        except Exception as error:
            raise ValueError(f'{path!r} cannot be read as an image '
                             f'({error})') from error
        if loaded is None:
            raise ValueError(f'{path!r} cannot be read as an image')
        return loaded

    def _from_array(self, image: np.ndarray) -> dict:
        ours = isinstance(self.load, LoadImage)
        # our loader hands on RGB, mmcv's BGR
        if image.ndim == 3 and self.channel_order != ('rgb' if ours
                                                      else 'bgr'):
            image = image[..., ::-1]
        image = np.ascontiguousarray(image)
        if ours:
            return self.load({'img': image})
        if getattr(self.load, 'color_type', 'color') == 'grayscale':
            image = image if image.ndim == 2 else _grey(image)
        elif image.ndim == 2:
            image = np.repeat(image[..., None], 3, axis=-1)
        return {'img': image, 'img_shape': image.shape[:2],
                'ori_shape': image.shape[:2]}


class _Prepared(Dataset):

    def __init__(self, images: list[Image],
                 prepare: Callable[[Image, int], dict]) -> None:
        self.images = images
        self.prepare = prepare

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        return self.prepare(self.images[index], index)


def _grey(image: np.ndarray) -> np.ndarray:
    # the luma weights of OpenCV, for blue, green and red
    return np.rint(image @ np.array([.114, .587, .299])).astype(np.uint8)


def _read_config(config: str | os.PathLike | Config | dict) -> Config:
    if isinstance(config, Config):
        config = config.copy()
    elif isinstance(config, dict):
        config = Config(config)
    else:
        path = os.fspath(config)
        if not os.path.isfile(path):
            raise FileNotFoundError(f'there is no config {path!r}')
        config = Config.fromfile(path)
    if 'model' not in config:
        raise ValueError('the config has no `model`')
    return config


def _test_pipeline(config: Config) -> list[dict]:
    """The transforms of the test data set, found through its wrappers."""
    dataset = config.get('test_dataloader', {}).get('dataset', {})
    while dataset:
        if dataset.get('pipeline'):
            return dataset['pipeline']
        inner = dataset.get('datasets') or [dataset.get('dataset')]
        dataset = inner[0]
    if config.get('test_pipeline'):
        return config.test_pipeline
    raise ValueError('the config has no test pipeline: give it a '
                     '`test_dataloader` whose data set has a `pipeline`, or '
                     'a `test_pipeline`')


def _split(transforms: list[Any]) -> tuple[Any, Compose]:
    """The transform that reads the file, and those after it."""
    for position, transform in enumerate(transforms):
        if type(transform).__name__.startswith('Load'):
            return transform, Compose(transforms[position + 1:])
    raise ValueError('the test pipeline reads no file: its first transform '
                     'must be one like `LoadImageFromFile`, but it has '
                     f'{[type(one).__name__ for one in transforms]}')


def _needed_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What an embedding depends on: all but proxies and losses' own parts."""
    return {
        name: value
        for name, value in model.state_dict().items()
        if not any('loss' in part or part == 'proxies'
                   for part in name.split('.'))
    }


def _as_list(images: Image | Sequence[Image]) -> list[Image]:
    if isinstance(images, (str, os.PathLike)):
        return [images]
    if isinstance(images, np.ndarray) and images.ndim in (2, 3):
        return [images]
    return list(images)


def _check(images: list[Image], batch_size: int, channel_order: str) -> None:
    if batch_size < 1:
        raise ValueError(f'batch_size must be >= 1, but got {batch_size}')
    if channel_order not in ('bgr', 'rgb'):
        raise ValueError("channel_order must be 'bgr' or 'rgb', but got "
                         f'{channel_order!r}')
    for path in _local_paths(images):
        if not os.path.isfile(path):
            raise FileNotFoundError(f'there is no image {path!r}')
    for index, image in enumerate(images):
        if not isinstance(image, np.ndarray):
            continue
        fits = image.ndim == 2 or (image.ndim == 3 and image.shape[2] == 3)
        if image.dtype != np.uint8 or not fits or image.size == 0:
            raise ValueError(
                f'image {index} must be a uint8 array of shape (H, W, 3) or '
                f'(H, W), but is {image.dtype} of shape {image.shape}')


def _local_paths(images: list[Image]) -> Iterator[str]:
    for index, image in enumerate(images):
        if isinstance(image, (str, os.PathLike)):
            if '://' not in os.fspath(image):
                yield os.fspath(image)
        elif not isinstance(image, np.ndarray):
            raise ValueError(f'image {index} must be a path or an array, but '
                             f'is a {type(image).__name__}')
