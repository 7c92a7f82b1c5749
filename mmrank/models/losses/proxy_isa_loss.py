from __future__ import annotations

import warnings

import torch
import torch.nn.functional as F
from mmengine.logging import MessageHub
from torch import Tensor

from mmrank.functional import (
    cosine_similarities,
    proxy_isa_loss,
    proxy_isa_schedule,
    proxy_isa_weights,
)
from mmrank.registry import MODELS
from mmrank.state import Collectives, EmbeddingQueue, current

from .embedding_loss import EmbeddingContext, EmbeddingLoss
from .global_batch import join_batch


@MODELS.register_module()
class ProxyISALoss(EmbeddingLoss):
    """Proxy-ISA: Proxy-Anchor with learnt weights for informative samples.

    One step: weights from the state as it stands
    (:func:`mmrank.functional.proxy_isa_weights`), the loss
    (:func:`mmrank.functional.proxy_isa_loss`), the batch's clean embeddings
    into the queue, then the new count n and learned similarity S of the
    classes: S is h times the mean cosine between a proxy and the queue's
    embeddings of its class.

    Schedule: n is counted from the start; the queue fills, and S is updated,
    from ``queue_start`` on; positive weights, and with them the filtering of
    outliers, act from ``weighting_start`` on (before, omega+ is 1 and every
    sample is clean). Both are 0-based epochs, or iterations with
    ``by_epoch=False``. The epoch is read from MMEngine's ``MessageHub``, so a
    resumed run continues where it was; a loop of your own calls
    :meth:`set_epoch`.

    The state (``counts``, ``learned``, ``steps``, ``queue``) is made of
    buffers: it is in the checkpoint, and the same on every process, in
    process order, whatever ``distributed`` says. In evaluation it is neither
    read nor changed: all weights are 1 then.

    Args:
        num_classes (int): number of classes C; the head fills it in.
        embedding_size (int): the embedding's width D; the head fills it in.
        margin (float): the paper's delta.
        alpha (float): the scale, > 0.
        k (float): sensitivity to a class's hardness, > 0.
        V (float): upper bound of the effective number, > 1.
        tau (float): timing of the decay of sigma, > 0.
        h (float): scale of the learned similarity.
        margin_lambda (float): the paper's lambda, extra width of the band of
            informative samples, in [0, 1].
        memory_size (int): the queue's capacity T, in embeddings.
        queue_start (int): first epoch (iteration) in which the queue fills.
        weighting_start (int): first epoch (iteration) with positive weights.
        by_epoch (bool): whether the schedule counts epochs or iterations.
        loss_weight (float): multiplies the loss.
        distributed (str): with several processes, 'global' is the loss of
            their joined batches, the same on each; 'local' is that of each
            process's own batch.

    Raises:
        ValueError: for values out of range; in ``forward`` if proxies are
            missing or do not fit, if a label is no class, or if the epoch is
            unknown.

    Source: Li et al., "Informative Sample-Aware Proxy for Deep Metric
    Learning" (2022), whose schedule and order these are. A sample whose
    cosine is not finite is never remembered; the paper has no such rule.

    Example:
        >>> import torch
        >>> loss = ProxyISALoss(num_classes=2, embedding_size=2,
        ...                     memory_size=8, by_epoch=False)
        >>> proxies = torch.eye(2)
        >>> for _ in range(3):
        ...     value = loss(proxies, torch.tensor([0, 1]), proxies=proxies)
        >>> loss.counts, loss.queue.count.item()
        (tensor([3, 3]), 2)
    """

    needs_proxies = True

    counts: Tensor
    learned: Tensor
    steps: Tensor
    queue: EmbeddingQueue

    def __init__(
            self,
            num_classes: int,
            embedding_size: int,
            margin: float = 0.1,
            alpha: float = 32.0,
            k: float = 0.9,
            V: float = 100.,  # noqa: N803
            tau: float = 1.5,
            h: float = 0.15,
            margin_lambda: float = 0.1,
            memory_size: int = 55_000,
            queue_start: int = 2,
            weighting_start: int = 3,
            by_epoch: bool = True,
            loss_weight: float = 1.0,
            distributed: str = 'global') -> None:
        super().__init__(loss_weight, distributed)
        if not isinstance(num_classes, int) or num_classes < 1:
            raise ValueError('num_classes must be an integer >= 1, but got '
                             f'{num_classes!r}')
        positive = dict(alpha=alpha, tau=tau, h=h)
        if wrong := {n: v for n, v in positive.items() if v <= 0}:
            raise ValueError(f'these must be > 0: {wrong}')
        if V <= 1:
            raise ValueError(f'V must be > 1, but got {V!r}')
        if not 0 <= queue_start <= weighting_start:
            raise ValueError(
                '0 <= queue_start <= weighting_start must hold, but got '
                f'{queue_start!r} and {weighting_start!r}')
        self.margin = margin
        self.alpha = alpha
        self.band = dict(k=k, V=V, tau=tau, margin_lambda=margin_lambda)
        self.h = h
        self.queue_start = queue_start
        self.weighting_start = weighting_start
        self.by_epoch = by_epoch
        self.register_buffer(
            'counts', torch.zeros(num_classes, dtype=torch.int64))
        self.register_buffer('learned', torch.ones(num_classes))
        self.register_buffer('steps', torch.tensor(0))
        self.queue = EmbeddingQueue(
            memory_size, embedding_size, num_classes)
        self._epoch: int | None = None

    def set_epoch(self, epoch: int) -> None:
        """Tell the 0-based epoch, in a loop that is not MMEngine's."""
        self._epoch = epoch

    def reset(self) -> None:
        """Forget everything, as before the first step."""
        self.counts.zero_()
        self.learned.fill_(1)
        self.steps.zero_()
        self.queue.reset()

    def batch_loss(self, embeddings: Tensor, labels: Tensor,
                   context: EmbeddingContext) -> Tensor:
        """The loss; where it learns, also the step of the state."""
        assert context.proxies is not None, 'needs_proxies'
        proxies = self._fitting(context.proxies)
        labels = labels.long()
        similarities = cosine_similarities(embeddings, proxies)
        if not context.learning:
            return self._loss(similarities, labels, torch.ones_like(labels),
                              torch.ones_like(similarities))
        now = self._now()
        positive, negative, outliers = proxy_isa_weights(
            similarities, labels, self.counts, self.learned, **self.band)
        if now < self.weighting_start:
            positive = torch.ones_like(positive)
            outliers = torch.zeros_like(outliers)
        loss = self._loss(similarities, labels, positive, negative)
        usable = similarities.detach().isfinite().all(1)
        self._remember(embeddings, labels, usable & ~outliers, proxies, now)
        return loss

    def _loss(self, similarities: Tensor, labels: Tensor, positive: Tensor,
              negative: Tensor) -> Tensor:
        return proxy_isa_loss(
            similarities, labels, positive, negative,
            margin=self.margin, alpha=self.alpha)

    @torch.no_grad()
    def statistics(self) -> dict[str, float]:
        """The state in a few numbers, for the log."""
        effective, sigma, eta = proxy_isa_schedule(
            self.counts, self.learned, **self.band)
        return {
            'queue_length': float(self.queue.count),
            'effective_number': effective.mean().item(),
            'sigma': sigma.mean().item(),
            'eta': eta.mean().item(),
            'learned_similarity': self.learned.mean().item(),
        }

    @torch.no_grad()
    def _remember(self, embeddings: Tensor, labels: Tensor, clean: Tensor,
                  proxies: Tensor, now: int) -> None:
        """Enqueue the clean samples, then update n and S."""
        comm = current()
        if self.distributed == 'local':
            embeddings, labels = join_batch(embeddings, labels, 'global')
            clean = torch.cat(comm.gather(clean))
        clean = _of_first(comm, clean) > 0
        fresh = labels[clean]
        self.counts.index_add_(0, fresh, torch.ones_like(fresh))
        self.steps.add_(1)
        if now < self.queue_start:
            return
        self.queue.enqueue(F.normalize(embeddings[clean].float()), fresh)
        means, members = self.queue.class_means(labels)
        cosines = torch.einsum(
            'bd,bd->b', means, F.normalize(proxies.detach()[labels].float()))
        learned = torch.where(members > 0, self.h * cosines,
                              self.learned[labels])
        # a class that occurs twice gets the same value twice
        self.learned[labels] = _of_first(comm, learned).to(self.learned)

    def _now(self) -> int:
        if not self.by_epoch:
            return int(self.steps)
        if self._epoch is not None:
            return self._epoch
        hub = MessageHub.get_current_instance()
        epoch = hub.get_info('epoch')
        if epoch is None:
            raise ValueError(
                'ProxyISALoss with by_epoch=True reads the epoch from '
                "MMEngine's MessageHub, where RuntimeInfoHook writes it, but "
                'it is not there; in another loop call set_epoch(epoch) or '
                'set by_epoch=False')
        if (hub.get_info('max_epochs') or 0) == 1 and self.weighting_start:
            _warn_never_starts()
        return int(epoch)

    def _fitting(self, proxies: Tensor) -> Tensor:
        expected = len(self.counts), self.queue.embeddings.shape[1]
        if tuple(proxies.shape) != expected:
            raise ValueError(
                f'ProxyISALoss was built with num_classes={expected[0]} and '
                f'embedding_size={expected[1]}, but got proxies of shape '
                f'{tuple(proxies.shape)}')
        return proxies

    def extra_repr(self) -> str:
        return (f'margin={self.margin}, alpha={self.alpha}, {self.band}, '
                f'h={self.h}, queue_start={self.queue_start}, '
                f'weighting_start={self.weighting_start}, '
                f'by_epoch={self.by_epoch}, {super().extra_repr()}')


def _of_first(comm: Collectives, tensor: Tensor) -> Tensor:
    """The first process's values, as float32, on every process.

    Sums on a GPU may differ in the last bit between processes; a threshold
    would turn that into states that drift apart.
    """
    tensor = tensor.float()
    return comm.sum(tensor if comm.index == 0 else torch.zeros_like(tensor))


def _warn_never_starts() -> None:
    # the default filter shows one warning a place
    warnings.warn(
        'ProxyISALoss counts epochs, but this run has a single one, as an '
        'iteration-based loop has: queue and positive weights never start; '
        'set by_epoch=False and the starts in iterations', stacklevel=2)
