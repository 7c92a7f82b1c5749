from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from mmrank.registry import MODELS
from mmrank.structures import RetrievalDataSample

_POOLINGS = ('avg', 'max', 'avg+max')


@MODELS.register_module()
class MetricLearningHead(BaseModule):
    """From feature maps to an embedding on the unit sphere, and its loss.

    Pooling, an optional layer norm, a linear layer, L2 normalisation. It has
    the interface of mmdet's ``LinearReIDHead``, so it also works in mmdet's
    ``BaseReID``.

    The head owns the proxies of the losses that need them: the parameter
    ``proxies`` of shape (C, D), drawn from N(0, 2/C) (Kaiming, fan-out). With
    ``optim_wrapper.paramwise_cfg`` its learning rate and weight decay are set
    by ``custom_keys={'head.proxies': dict(lr_mult=100, decay_mult=0)}``.

    Args:
        in_channels (int): channels of the features.
        embedding_size (int): the embedding's width D.
        loss (dict): a registered metric-learning loss, called as
            ``loss(embeddings (B, D), labels (B,), proxies=proxies)``; it
            returns a scalar or a dict. Where its class takes
            ``num_classes`` and ``embedding_size`` and the config gives none,
            the head's are filled in.
        num_classes (int, optional): number C of training classes; required
            by losses with proxies.
        pooling (str): 'avg', 'max', or 'avg+max', their sum. Over the last
            two dims of (B, C, H, W) features, over the tokens of (B, N, D)
            ones; (B, D) features are taken as they are.
        layer_norm (bool): whether the pooled features are layer-normalised.
        normalize (bool): whether the embedding has length 1.
        init_cfg (dict, optional): of ``BaseModule``; without it the linear
            layer's weight is drawn by Kaiming's rule (normal, fan-out), its
            bias is 0.

    Raises:
        ValueError: for an unknown pooling, or when the loss needs proxies and
            ``num_classes`` is missing.

    Example:
        >>> import torch
        >>> head = MetricLearningHead(
        ...     8, 4, loss=dict(type='mmrank.ProxyAnchorLoss'), num_classes=3)
        >>> tuple(head(torch.randn(2, 8, 5, 5)).shape)
        (2, 4)
        >>> tuple(head.proxies.shape)
        (3, 4)
    """

    def __init__(self,
                 in_channels: int,
                 embedding_size: int,
                 loss: dict,
                 num_classes: int | None = None,
                 pooling: str = 'avg+max',
                 layer_norm: bool = False,
                 normalize: bool = True,
                 init_cfg: dict | None = None) -> None:
        super().__init__(init_cfg)
        if pooling not in _POOLINGS:
            raise ValueError(
                f'pooling must be one of {_POOLINGS}, but got {pooling!r}')
        self.pooling = pooling
        self.normalize = normalize
        self.norm = nn.LayerNorm(in_channels) if layer_norm else None
        self.fc = nn.Linear(in_channels, embedding_size)
        nn.init.kaiming_normal_(self.fc.weight, mode='fan_out')
        nn.init.zeros_(self.fc.bias)
        self.loss_module = MODELS.build(
            _with_sizes(loss, num_classes, embedding_size))
        self.register_parameter('proxies', None)
        if getattr(self.loss_module, 'needs_proxies', False):
            if not isinstance(num_classes, int) or num_classes < 1:
                raise ValueError(
                    f'{loss["type"]} has one proxy a class: give the head '
                    f'num_classes >= 1, but got {num_classes!r}')
            self.proxies = nn.Parameter(
                torch.empty(num_classes, embedding_size))
            nn.init.kaiming_normal_(self.proxies, mode='fan_out')

    def forward(self, feats: Tensor | Sequence[Tensor]) -> Tensor:
        """The embeddings.

        Args:
            feats (Tensor | Sequence[Tensor]): shape (B, C, H, W), (B, N, D)
                or (B, D); of a sequence, the last is taken.

        Returns:
            Tensor: shape (B, D), with ``normalize`` float32 or wider.
        """
        while not isinstance(feats, Tensor):
            feats = feats[-1]
        pooled = self._pool(feats)
        if self.norm is not None:
            pooled = self.norm(pooled)
        embeddings = self.fc(pooled)
        if self.normalize:
            dtype = torch.promote_types(embeddings.dtype, torch.float32)
            embeddings = F.normalize(embeddings.to(dtype))
        return embeddings

    def loss(self, feats: Tensor | Sequence[Tensor],
             data_samples: list[BaseDataElement]) -> dict[str, Tensor]:
        """The losses of a batch.

        Args:
            feats (Tensor | Sequence[Tensor]): see :meth:`forward`.
            data_samples (list): B samples with ``gt_label.label``.

        Returns:
            dict[str, Tensor]: ``loss_metric``, or what the loss returned if
            that is a dict.
        """
        embeddings = self(feats)
        labels = torch.cat([
            sample.gt_label.label.reshape(-1) for sample in data_samples
        ]) if data_samples else torch.empty(0, dtype=torch.int64)
        loss = self.loss_module(
            embeddings, labels.to(embeddings.device), proxies=self.proxies)
        return loss if isinstance(loss, dict) else {'loss_metric': loss}

    def predict(
        self,
        feats: Tensor | Sequence[Tensor],
        data_samples: list[BaseDataElement] | None = None
    ) -> list[BaseDataElement]:
        """The samples with their embeddings.

        Args:
            feats (Tensor | Sequence[Tensor]): see :meth:`forward`.
            data_samples (list, optional): B samples to write to; without
                them new ones are made.

        Returns:
            list: B samples with ``pred_embedding``, shape (D,). A class that
            declares ``pred_feature``, as mmdet's ``ReIDDataSample``, gets
            that as well.
        """
        embeddings = self(feats)
        if data_samples is None:
            data_samples = [RetrievalDataSample() for _ in embeddings]
        for sample, embedding in zip(data_samples, embeddings):
            sample.pred_embedding = embedding
            if hasattr(type(sample), 'pred_feature'):
                sample.pred_feature = embedding
        return data_samples

    def _pool(self, feats: Tensor) -> Tensor:
        if feats.ndim == 2:
            return feats
        if feats.ndim not in (3, 4):
            raise ValueError('features must have shape (B, C, H, W), '
                             f'(B, N, D) or (B, D), got {tuple(feats.shape)}')
        dims = (2, 3) if feats.ndim == 4 else (1, )
        pooled = []
        if 'avg' in self.pooling:
            pooled.append(feats.mean(dims))
        if 'max' in self.pooling:
            # max_pool's rule for ties, not amax's: the gradient goes to one
            pooled.append(feats.flatten(dims[0], dims[-1]).max(dims[0])[0])
        return sum(pooled[1:], pooled[0])


def _with_sizes(loss: dict, num_classes: int | None,
                embedding_size: int) -> dict:
    cls = MODELS.get(loss['type']) if isinstance(loss['type'], str) \
        else loss['type']
    if cls is None:
        # MODELS.build has the message for an unknown type
        return loss
    sizes = dict(num_classes=num_classes, embedding_size=embedding_size)
    taken = inspect.signature(cls).parameters
    return {**{k: v for k, v in sizes.items() if k in taken}, **loss}
