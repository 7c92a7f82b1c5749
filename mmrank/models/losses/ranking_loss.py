"""What makes a loss a ranking loss: the contract, and all that is shared."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mmrank.state import BatchMemory, Collectives, current

from .global_batch import EMPTY_BATCHES, check_distributed
from .ranked_rows import foreground, joined_rows, one_hot, ranked_rows
from .score_calibration import ScoreCalibration


@dataclass(frozen=True)
class RankingContext:
    """What a leaf may want to know beside scores and relevance.

    Attributes:
        learning (bool): training mode with gradients; False in evaluation,
            where margins and the like are off.
        quality (Tensor, optional): (N,), what a quality-aware head passes
            with its labels, such as the IoU of each positive's box.
        valid (Tensor, optional): (N,), bool, the rows that take part; only
            for a leaf that says ``masks_rows``. The relevance of the others
            is False.
        memory_scores (Tensor, optional): (M, C), remembered scores, without
            gradient, in the type of the scores.
        memory_relevance (Tensor, optional): (M, C), bool.
        comm (Collectives, optional): the other processes; only for a leaf
            that says ``communicates``.
    """

    learning: bool
    quality: Tensor | None = None
    valid: Tensor | None = None
    memory_scores: Tensor | None = None
    memory_relevance: Tensor | None = None
    comm: Collectives | None = None


class RankingLoss(nn.Module):
    """Base of the losses that rank the scores of a classifier.

    It stands in the place of a head's ``loss_cls``; a head that cannot honour
    a ranking refuses every subclass when it is built. A subclass writes
    :meth:`ranking_terms`, the mathematics on one process, and has here:
    mmdet's calling convention, the columns of the classes, no ignored rows,
    float32 or wider also under autocast, the joined batch of all processes,
    a memory, activation, calibration and what is logged.

    Its ``__init__`` names its own hyperparameters and passes the rest on, as
    heads write ``use_sigmoid`` and ``memory_batches`` into the config::

        def __init__(self, tau=0.01, **options):
            super().__init__(**options)

    Class attributes, for a leaf to change:

    - ``communicates``: it is handed ``context.comm`` and its own process's
      rows, and sends messages itself (RaMBO: a few numbers a positive instead
      of all rows). Its gradient then is ``W`` times that of the joined
      batch's loss, which DDP's mean divides by.
    - ``masks_rows``: rows that take no part stay, and ``context.valid`` tells
      which; nothing depends on their number then.

    Args:
        loss_weight (float): multiplies the loss, >= 0.
        num_classes (int, optional): ``C``. A box head fills it in; where it
            is known, scores may have ``C`` or ``C + 1`` columns.
        use_sigmoid (bool): where ``num_classes`` is not known, whether all
            columns are classes, or (False) the last one is the background,
            which is not ranked.
        memory_batches (int): how many past batches are remembered; 0 for
            none. A leaf that does not read ``context.memory_scores`` has no
            use for them.
        memory_negatives (int, optional): of a remembered batch keep only the
            rows of positives and of every class's this many highest
            negatives. Bounds a dense head's memory, which otherwise is
            ``4 * N * C`` bytes a batch (64 MB at 200k anchors x 80 classes);
            the counts then leave the lowest negatives out. None keeps all.
        distributed (str): with several processes, 'global' is the loss of
            the joined batch, the same on each, and so is the memory; 'local'
            is that of each process's own batch, and the memory differs.
        reduction (str): 'mean' only; a ranking is one number a batch, so
            there is nothing to sum or to leave unreduced.

    Attributes:
        memory (BatchMemory): in the state dict; neither read nor filled in
            evaluation mode or under ``torch.no_grad()``.
        calibration (ScoreCalibration): the identity until it is fitted.
        last_terms (dict[str, Tensor]): the other terms of the last call,
            detached. Heads log them through :meth:`get_accuracy`.

    Raises:
        ValueError: for values out of range; in :meth:`forward` for labels
            that are no class numbers, for shapes that do not fit, or for
            another reduction.

    Example:
        >>> class PairLoss(RankingLoss):
        ...     '''The share of pairs in the wrong order, smoothed.'''
        ...     def ranking_terms(self, scores, relevance, context):
        ...         pairs = [s[~r][:, None] - s[r]
        ...                  for s, r in zip(scores.T, relevance.T)]
        ...         pairs = torch.cat([p.flatten() for p in pairs])
        ...         return dict(loss=pairs.sigmoid().sum()
        ...                     / max(1, len(pairs)))
        >>> scores = torch.tensor([[4., -4.], [-4., 4.]], requires_grad=True)
        >>> loss = PairLoss()
        >>> round(loss(scores, torch.tensor([0, 1])).item(), 4)
        0.0003
        >>> loss.get_activation(scores).shape
        torch.Size([2, 3])
    """

    communicates = False
    masks_rows = False
    # read by mmdet's box heads: channels, activation and accuracy together
    custom_cls_channels = True
    custom_activation = True
    custom_accuracy = True
    # for those who ask without an import; heads ask for the type
    is_ranking_loss = True

    def __init__(self,
                 loss_weight: float = 1.0,
                 num_classes: int | None = None,
                 use_sigmoid: bool = True,
                 memory_batches: int = 0,
                 memory_negatives: int | None = None,
                 distributed: str = 'global',
                 reduction: str = 'mean') -> None:
        super().__init__()
        check_number('loss_weight', loss_weight, 0)
        for name, count in (('num_classes', num_classes),
                            ('memory_negatives', memory_negatives)):
            if count is not None and (type(count) is not int or count < 1):
                raise ValueError(f'{name} must be an integer >= 1 or None, '
                                 f'but got {count!r}')
        self._check_reduction(reduction)
        self.loss_weight = loss_weight
        self.num_classes = num_classes
        self.use_sigmoid = use_sigmoid
        self.memory_batches = memory_batches
        self.memory_negatives = memory_negatives
        self.distributed = check_distributed(distributed)
        self.memory = BatchMemory(memory_batches, ('scores', 'labels'))
        self.calibration = ScoreCalibration()
        self.last_terms: dict[str, Tensor] = {}
        self._empty_batches = 0

    def ranking_terms(self, scores: Tensor, relevance: Tensor,
                      context: RankingContext) -> dict[str, Tensor]:
        """The loss and what is logged; what a subclass writes.

        Args:
            scores (Tensor): (N, C), float32 or wider, higher is better; of
                all processes unless the leaf ``communicates``. N may be 0.
            relevance (Tensor): (N, C), bool; a row has at most one True.
            context (RankingContext): what else there is.

        Returns:
            dict[str, Tensor]: ``loss``, a scalar attached to the graph also
            where nothing is relevant, before ``loss_weight``; and scalars to
            be logged under names without "loss", the same in every call.
        """
        raise NotImplementedError(
            f'{type(self).__name__} must define ranking_terms(scores, '
            'relevance, context)')

    # a memory is not for graphs: a compiled model breaks its graph here
    @torch.compiler.disable
    def forward(self,
                cls_score: Tensor,
                label: Tensor | tuple[Tensor, Tensor],
                weight: Tensor | None = None,
                avg_factor: float | None = None,
                reduction_override: str | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            cls_score (Tensor): logits (N, C), or (N, C + 1) with a
                background column; see ``num_classes``. Lifted to float32.
            label (Tensor | tuple): integers (N,); 0..C-1 a class, C the
                background, negative: the sample takes no part. Or these and
                a quality (N,), as quality-aware heads pass them: the labels
                rank, the quality is the leaf's to use.
            weight (Tensor, optional): (N,); 0: the sample takes no part.
                Other weights make no difference.
            avg_factor (float, optional): without effect, as the loss has its
                own normaliser.
            reduction_override (str, optional): 'mean' or None.

        Returns:
            Tensor: a scalar, float32 or wider, attached to the graph.
        """
        self._check_reduction(reduction_override or 'mean')
        rows = ranked_rows(
            self._foreground(cls_score), label, weight, self.masks_rows)
        learning = self.training and torch.is_grad_enabled()
        comm = self._others(learning)
        if comm is not None and not self.communicates:
            rows, comm = joined_rows(rows, comm), None
        scores, label, quality = rows
        seen = self._recall(scores) if learning else {}
        with torch.autocast(scores.device.type, enabled=False):
            terms = self.ranking_terms(
                scores, one_hot(label, scores.shape[1]),
                RankingContext(
                    learning, quality,
                    valid=label >= 0 if self.masks_rows else None,
                    comm=comm, **seen))
        loss = self._checked_loss(terms)
        # a logger takes their mean, which counts and truths have not
        self.last_terms = {
            name: value.detach().to(
                torch.promote_types(value.dtype, torch.float32))
            for name, value in terms.items() if name != 'loss'}
        if learning:
            self._remember(scores, label, loss, comm)
        return self.loss_weight * loss

    def reset(self) -> None:
        """Forget all remembered batches."""
        self.memory.reset()

    def get_cls_channels(self, num_classes: int) -> int:
        """Columns that a box head's classifier has: one a class.

        Raises:
            ValueError: if the loss was told another number of classes.
        """
        if self.num_classes not in (None, num_classes):
            raise ValueError(
                f'{type(self).__name__} was told num_classes='
                f'{self.num_classes}, but its head has '
                f'num_classes={num_classes}')
        self.num_classes = num_classes
        return num_classes if self.use_sigmoid else num_classes + 1

    def get_activation(self, cls_score: Tensor) -> Tensor:
        """Scores in [0, 1] for the prediction.

        The sigmoid leaves the order of the logits as it is. A ranking does
        not fix their scale, so a threshold of 0.05 means a logit of -2.9 and
        not a probability, until :attr:`calibration` is fitted.

        Args:
            cls_score (Tensor): logits (..., C) or (..., C + 1).

        Returns:
            Tensor: (..., C + 1), the last column, for the background, is 0.
        """
        scores = self._foreground(cls_score).sigmoid()
        scores = self.calibration(scores)
        return torch.cat([scores, torch.zeros_like(scores[..., :1])], dim=-1)

    def get_accuracy(self, cls_score: Tensor,
                     labels: Tensor) -> dict[str, Tensor]:
        """What a head logs: accuracy, and the terms of the last loss.

        Args:
            cls_score (Tensor): logits (N, C) or (N, C + 1).
            labels (Tensor): integers (N,).

        Returns:
            dict[str, Tensor]: ``acc_classes``, the share in percent of the
            foreground samples whose own class has the highest score (0 where
            there are none), and :attr:`last_terms`. No name contains "loss",
            so none is added to the total.
        """
        scores = self._foreground(cls_score.detach())
        is_class = (labels >= 0) & (labels < scores.shape[1])
        hits = 0 if len(scores) == 0 else (
            (scores.argmax(1) == labels) & is_class).sum()
        accuracy = 100 * hits / is_class.sum().clamp(min=1).float()
        return dict(acc_classes=accuracy, **self.last_terms)

    def extra_repr(self) -> str:
        return (f'loss_weight={self.loss_weight}, '
                f'memory_batches={self.memory_batches}')

    def _foreground(self, cls_score: Tensor) -> Tensor:
        return foreground(cls_score, self.num_classes, self.use_sigmoid)

    def _others(self, learning: bool) -> Collectives | None:
        # in evaluation processes may hold different numbers of batches
        if not learning or self.distributed == 'local':
            return None
        comm = current()
        return None if comm.size == 1 else comm

    def _recall(self, scores: Tensor) -> dict[str, Tensor]:
        """The context's memory."""
        seen = self.memory.read()
        if seen is None:
            return {}
        classes = scores.shape[1]
        if seen['scores'].shape[1] == classes:
            return dict(memory_scores=seen['scores'].to(scores),
                        memory_relevance=one_hot(seen['labels'], classes))
        warnings.warn(
            f'the remembered scores are of {seen["scores"].shape[1]} classes,'
            f' the new ones of {classes}: the score memory of '
            f'{type(self).__name__} was emptied', stacklevel=4)
        self.memory.reset()
        return {}

    def _checked_loss(self, terms: dict[str, Tensor]) -> Tensor:
        """The term ``loss``; refuses others that a runner would add to it."""
        wrong = [name for name in terms if 'loss' in name and name != 'loss']
        if 'loss' not in terms or wrong:
            raise ValueError(
                f'{type(self).__name__}.ranking_terms must return a scalar '
                'under "loss" and others under names without "loss", which '
                f'a runner would add to it, but returned {list(terms)}')
        return terms['loss']

    def _remember(self, scores: Tensor, label: Tensor, loss: Tensor,
                  comm: Collectives | None) -> None:
        scores = scores.detach()
        if self.memory_batches > 0:
            if self.masks_rows:
                scores, label = scores[label >= 0], label[label >= 0]
            scores, label = self._kept(scores, label)
            if comm is not None:
                # every process remembers the whole batch, in process order:
                # one memory in the checkpoint, whoever writes it. A classifier
                # has few rows, so this costs little beside the gradients;
                # memory_negatives bounds it for dense heads
                scores = torch.cat(comm.gather(scores))
                label = torch.cat(comm.gather(label))
                scores, label = self._kept(scores, label)
            if not bool(loss.isnan()):
                self.memory.remember(scores=scores, labels=label)
        self._watch_positives(label, scores.shape[1])

    def _kept(self, scores: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Without the negatives that ``memory_negatives`` leaves out."""
        number = self.memory_negatives
        if number is None or number >= len(scores):
            return scores, label
        relevance = one_hot(label, scores.shape[1])
        negatives = scores.masked_fill(relevance, -math.inf)
        keep = relevance.any(1)
        keep[negatives.topk(number, dim=0).indices.view(-1)] = True
        return scores[keep], label[keep]

    def _watch_positives(self, label: Tensor, num_classes: int) -> None:
        if self._empty_batches >= EMPTY_BATCHES:
            return
        empty = not bool(((label >= 0) & (label < num_classes)).any())
        self._empty_batches = self._empty_batches + 1 if empty else 0
        if self._empty_batches == EMPTY_BATCHES:
            warnings.warn(
                f'no sample of the last {EMPTY_BATCHES} batches was '
                f'positive, so {type(self).__name__} teaches nothing: check '
                'the labels, the class names and the assigner', stacklevel=4)

    def _check_reduction(self, reduction: str) -> None:
        if reduction != 'mean':
            raise ValueError(
                f'{type(self).__name__} is one number for a whole batch: '
                f"reduction must be 'mean', but got {reduction!r}")


def check_number(name: str, value: float, low: float | None) -> None:
    """ValueError unless ``value`` is finite and >= low; > 0 for None."""
    fine = value > 0 if low is None else low <= value
    if not fine or not math.isfinite(value):
        bound = '> 0' if low is None else f'>= {low}'
        raise ValueError(
            f'{name} must be finite and {bound}, but got {value!r}')
