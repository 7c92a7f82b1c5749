from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from mmengine.hooks import Hook
from mmengine.runner import Runner
from torch import Tensor, nn

from mmrank.registry import HOOKS

from ..bare_model import bare_model


@HOOKS.register_module()
class EmbeddingStatisticsHook(Hook):
    """Statistics of embeddings and proxies, to the visualizer.

    Every ``interval`` iterations it takes the embeddings that the head made
    of this process's batch, computes the numbers of
    :func:`embedding_statistics`, adds those of the loss where it has a method
    ``statistics`` (Proxy-ISA: queue length, effective number, sigma, eta,
    learned similarity), and writes them as scalars ``embedding/<name>``.

    Args:
        interval (int): iterations between two measurements, >= 1.
        head (str): name of the head in the model; its ``forward`` returns the
            embeddings, and it may have ``proxies`` and ``loss_module``.

    Raises:
        ValueError: for an interval below 1; before training if the model has
            no such head.

    Example:
        >>> custom_hooks = [
        ...     dict(type='mmrank.EmbeddingStatisticsHook', interval=100)]
    """

    priority = 'LOW'

    def __init__(self, interval: int = 50, head: str = 'head') -> None:
        if not isinstance(interval, int) or interval < 1:
            raise ValueError(
                f'interval must be an integer >= 1, but got {interval!r}')
        self.interval = interval
        self.head_name = head
        self._embeddings: Tensor | None = None
        self._handle: Any = None

    def before_train(self, runner: Runner) -> None:
        """Listen to the head."""
        model = bare_model(runner)
        head = dict(model.named_modules()).get(self.head_name)
        if head is None:
            raise ValueError(
                f'head={self.head_name!r} of EmbeddingStatisticsHook: the '
                f'model has {[name for name, _ in model.named_children()]}')
        self._head = head

    def before_train_iter(self,
                          runner: Runner,
                          batch_idx: int,
                          data_batch: Any = None) -> None:
        """Keep the embeddings of the iterations that are measured."""
        if self.every_n_train_iters(runner, self.interval):
            self._handle = self._head.register_forward_hook(self._keep)

    def after_train_iter(self,
                         runner: Runner,
                         batch_idx: int,
                         data_batch: Any = None,
                         outputs: Any = None) -> None:
        """Measure and write."""
        if self._handle is None:
            return
        self._handle.remove()
        self._handle = None
        if self._embeddings is None:
            return
        embeddings, self._embeddings = self._embeddings, None
        labels = torch.cat([
            sample.gt_label.label.reshape(-1)
            for sample in data_batch['data_samples']
        ]).to(embeddings.device)
        numbers = embedding_statistics(
            embeddings, labels, getattr(self._head, 'proxies', None))
        loss: Any = getattr(self._head, 'loss_module', None)
        if loss is not None and hasattr(loss, 'statistics'):
            numbers.update(loss.statistics())
        runner.visualizer.add_scalars(
            {f'embedding/{name}': value for name, value in numbers.items()},
            step=runner.iter + 1)

    def _keep(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        self._embeddings = output.detach()


@torch.no_grad()
def embedding_statistics(embeddings: Tensor,
                         labels: Tensor,
                         proxies: Tensor | None = None) -> dict[str, float]:
    """A batch of embeddings, and the proxies, in a few numbers.

    Args:
        embeddings (Tensor): shape (B, D).
        labels (Tensor): shape (B,), integers in [0, C).
        proxies (Tensor, optional): shape (C, D).

    Returns:
        dict[str, float]: mean cosines ``same_class`` and ``other_class`` of
        the batch's pairs; ``effective_rank``, e to the entropy of the
        normalised singular values, 1 for collapsed embeddings and at most
        min(B, D); with proxies also ``own_proxy`` and
        ``nearest_other_proxy``, mean cosines of embeddings with proxies, and
        ``proxy_norm``, the proxies' mean length. A number that has nothing to
        average is left out.

    Example:
        >>> import torch
        >>> numbers = embedding_statistics(
        ...     torch.eye(2)[[0, 0, 1]], torch.tensor([0, 0, 1]))
        >>> numbers['same_class'], numbers['other_class']
        (1.0, 0.0)
    """
    embeddings = F.normalize(embeddings.float())
    cosines = embeddings @ embeddings.t()
    same = labels[:, None] == labels
    numbers = {
        'same_class': cosines[same & ~torch.eye(
            len(labels), dtype=torch.bool, device=same.device)].mean(),
        'other_class': cosines[~same].mean(),
    }
    if len(labels):
        spectrum = torch.linalg.svdvals(embeddings)
        share = spectrum / spectrum.sum()
        numbers['effective_rank'] = torch.special.entr(share).sum().exp()
    if proxies is not None:
        to_proxies = embeddings @ F.normalize(proxies.float()).t()
        own = to_proxies.gather(1, labels[:, None])
        others = to_proxies.scatter(1, labels[:, None], -torch.inf)
        numbers['own_proxy'] = own.mean()
        if others.shape[1] > 1:
            numbers['nearest_other_proxy'] = others.amax(1).mean()
        numbers['proxy_norm'] = proxies.float().norm(dim=1).mean()
    return {
        name: number.item()
        for name, number in numbers.items() if number.isfinite()
    }
