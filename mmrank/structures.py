"""The data sample of retrieval and metric learning."""

from __future__ import annotations

import numpy as np
import torch
from mmengine.structures import BaseDataElement, LabelData
from torch import Tensor


class RetrievalDataSample(BaseDataElement):
    """What is known about one image: its class, and its embedding.

    The interface is that of mmdet's ``ReIDDataSample`` as far as the parts of
    this package use it, so they work with either class.

    Meta fields by convention: ``sample_idx`` (int), the image's index in its
    data set, by which an evaluation recognises repeated images; ``img_path``
    (str).

    Data fields: ``gt_label`` (LabelData), whose ``label`` is an int64 tensor
    of shape (1,); ``pred_embedding`` (Tensor), shape (D,), set by the head's
    ``predict``.

    Example:
        >>> sample = RetrievalDataSample(metainfo=dict(sample_idx=7))
        >>> sample.set_gt_label(3).gt_label.label
        tensor([3])
        >>> sample.sample_idx
        7
    """

    @property
    def gt_label(self) -> LabelData:
        """The class of the image."""
        return self._gt_label

    @gt_label.setter
    def gt_label(self, value: LabelData) -> None:
        self.set_field(value, '_gt_label', dtype=LabelData)

    @gt_label.deleter
    def gt_label(self) -> None:
        del self._gt_label

    @property
    def pred_embedding(self) -> Tensor:
        """The embedding that the head predicted, shape (D,)."""
        return self._pred_embedding

    @pred_embedding.setter
    def pred_embedding(self, value: Tensor) -> None:
        self.set_field(value, '_pred_embedding', dtype=torch.Tensor)

    @pred_embedding.deleter
    def pred_embedding(self) -> None:
        del self._pred_embedding

    def set_gt_label(
            self, value: int | np.ndarray | Tensor) -> RetrievalDataSample:
        """Set the class, given as an int or as an array of one element."""
        label = torch.as_tensor(value, dtype=torch.int64).reshape(-1)
        if label.numel() != 1:
            raise ValueError(
                f'an image has one label, but got {label.tolist()}')
        self.gt_label = LabelData(label=label)
        return self
