"""RaMBO's detection loss, in mmdet's calling convention."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from mmrank.functional import blackbox_map_terms
from mmrank.registry import MODELS
from mmrank.state import BatchMemory, Collectives

from .global_batch import EMPTY_BATCHES, check_distributed
from .score_calibration import ScoreCalibration


@MODELS.register_module()
class RaMBOLoss(nn.Module):
    """Blackbox-differentiated mean average precision of a classifier.

        L = (w_map * L_mAP + w_apc * L_APc) / (w_map + w_apc)

    ``L_mAP`` is the mean over classes of 1 - AP, each class ranking all
    samples of the batch (of all images, not image by image) together with the
    remembered ones; ``L_APc`` ranks all (sample, class) scores of the batch
    in one list. See :func:`mmrank.functional.blackbox_map_loss`.

    It replaces a head's ``loss_cls``. Box heads ask :meth:`get_cls_channels`
    and get one column a class and none for the background, since AP ranks
    nothing by it. Dense heads read ``use_sigmoid`` in the loss's config: write
    ``use_sigmoid=True`` there.

    Args:
        lambda_val (float): the paper's lambda, > 0.
        margin (float): the paper's alpha, >= 0; acts in training only.
        memory_batches (int): the paper's tau, how many past batches are
            remembered; 0 for none.
        map_weight (float): ``w_map``, >= 0.
        cross_class_weight (float): ``w_apc``, >= 0.
        loss_weight (float): multiplies the loss; ``lambda_val`` keeps its
            meaning.
        num_classes (int, optional): ``C``. A box head fills it in; where it
            is known, scores may have ``C`` or ``C + 1`` columns.
        use_sigmoid (bool): where ``num_classes`` is not known, whether all
            columns are classes, or (False) the last one is the background,
            which is not ranked.
        random_margin (bool): whether each score's margin is
            ``alpha * |N(0, 1)|``, drawn anew in each step, as in the authors'
            code, instead of the paper's constant.
        memory_in_cross_class (bool): whether ``L_APc`` sees the remembered
            scores too; in the authors' code it does not.
        memory_negatives (int, optional): of a remembered batch keep only the
            rows of positives and of every class's this many highest
            negatives. Bounds a dense head's memory, which otherwise is
            ``4 * N * C`` bytes a batch (64 MB at 200k anchors x 80 classes);
            the counts then leave the lowest negatives out. None keeps all.
        distributed (str): with several processes, 'global' is the loss of
            the joined batch, the same on each, and so is the memory; 'local'
            is that of each process's own batch, and the memory differs.
        reduction (str): 'mean' only; an average precision is one number a
            batch, so there is nothing to sum or to leave unreduced.

    Attributes:
        memory (BatchMemory): in the state dict; neither read nor filled in
            evaluation mode or under ``torch.no_grad()``.
        calibration (ScoreCalibration): the identity until it is fitted.
        last_terms (dict[str, Tensor]): the detached ``per_class_term`` and
            ``cross_class_term`` of the last call, unweighted. Box heads log
            them through :meth:`get_accuracy`.

    Raises:
        ValueError: for values out of range; in :meth:`forward` for labels
            that are no class numbers, for shapes that do not fit, or for
            another reduction.

    Source: Rolinek et al., CVPR 2020 (RaMBO), section 5.2, Eq. 6, 14, 21-23;
    the weights 2:1, the normalised rank and the memory's place are those of
    the authors' code.

    Example:
        >>> loss = RaMBOLoss(margin=0., memory_batches=0)
        >>> scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
        >>> value = loss(scores, torch.tensor([0, 1]))
        >>> round(float(value), 4), loss.last_terms['per_class_term'].item()
        (0.0556, 0.0)
    """

    # read by mmdet's box heads: channels, activation and accuracy together
    custom_cls_channels = True
    custom_activation = True
    custom_accuracy = True
    # a head that cannot honour a ranking is refused when it takes this loss
    is_ranking_loss = True

    def __init__(self,
                 lambda_val: float = 0.5,
                 margin: float = 0.15,
                 memory_batches: int = 7,
                 map_weight: float = 2.0,
                 cross_class_weight: float = 1.0,
                 loss_weight: float = 1.0,
                 num_classes: int | None = None,
                 use_sigmoid: bool = True,
                 random_margin: bool = False,
                 memory_in_cross_class: bool = False,
                 memory_negatives: int | None = None,
                 distributed: str = 'global',
                 reduction: str = 'mean') -> None:
        super().__init__()
        for name, value, low in (('lambda_val', lambda_val, None),
                                 ('margin', margin, 0),
                                 ('map_weight', map_weight, 0),
                                 ('cross_class_weight', cross_class_weight, 0),
                                 ('loss_weight', loss_weight, 0)):
            _check_number(name, value, low)
        if map_weight + cross_class_weight == 0:
            raise ValueError('map_weight and cross_class_weight must not '
                             'both be 0')
        for name, count in (('num_classes', num_classes),
                            ('memory_negatives', memory_negatives)):
            if count is not None and (type(count) is not int or count < 1):
                raise ValueError(f'{name} must be an integer >= 1 or None, '
                                 f'but got {count!r}')
        _check_reduction(reduction)
        self.lambda_val = lambda_val
        self.margin = margin
        self.memory_batches = memory_batches
        self.weights = dict(
            map_weight=map_weight, cross_class_weight=cross_class_weight)
        self.loss_weight = loss_weight
        self.num_classes = num_classes
        self.use_sigmoid = use_sigmoid
        self.random_margin = random_margin
        self.memory_in_cross_class = memory_in_cross_class
        self.memory_negatives = memory_negatives
        self.distributed = check_distributed(distributed)
        self.memory = BatchMemory(memory_batches, ('scores', 'labels'))
        self.calibration = ScoreCalibration()
        self.last_terms: dict[str, Tensor] = {}
        self._empty_batches = 0

    # a memory is not for graphs: a compiled model breaks its graph here
    @torch.compiler.disable
    def forward(self,
                cls_score: Tensor,
                label: Tensor,
                weight: Tensor | None = None,
                avg_factor: float | None = None,
                reduction_override: str | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            cls_score (Tensor): logits (N, C), or (N, C + 1) with a
                background column; see ``num_classes``. Lifted to float32.
            label (Tensor): integers (N,); 0..C-1 a class, C the background,
                negative: the sample takes no part.
            weight (Tensor, optional): (N,); 0: the sample takes no part.
                Other weights make no difference.
            avg_factor (float, optional): without effect, as the loss has its
                own normaliser.
            reduction_override (str, optional): 'mean' or None.

        Returns:
            Tensor: a scalar in [0, loss_weight], float32 or wider; 0,
            attached to the graph, where nothing is positive; NaN where a
            score is NaN.
        """
        _check_reduction(reduction_override or 'mean')
        scores, label = self._ranked(cls_score, label, weight)
        learning = self.training and torch.is_grad_enabled()
        comm = self._others(learning)
        seen = self._recall(scores) if learning else None
        terms = self._terms(scores, label, seen, learning, comm)
        self.last_terms = dict(
            per_class_term=terms.per_class.detach(),
            cross_class_term=terms.cross_class.detach())
        if learning:
            self._remember(scores, label, terms.loss, comm)
        return self.loss_weight * terms.loss

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
                f'RaMBOLoss was told num_classes={self.num_classes}, but its '
                f'head has num_classes={num_classes}')
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
            there are none), ``per_class_term`` and ``cross_class_term``. No
            name contains "loss", so none is added to the total.
        """
        scores = self._foreground(cls_score.detach())
        is_class = (labels >= 0) & (labels < scores.shape[1])
        hits = 0 if len(scores) == 0 else (
            (scores.argmax(1) == labels) & is_class).sum()
        accuracy = 100 * hits / is_class.sum().clamp(min=1).float()
        nothing = torch.zeros_like(accuracy)
        return dict(
            acc_classes=accuracy,
            per_class_term=self.last_terms.get('per_class_term', nothing),
            cross_class_term=self.last_terms.get('cross_class_term', nothing))

    def extra_repr(self) -> str:
        return (f'lambda_val={self.lambda_val}, margin={self.margin}, '
                f'loss_weight={self.loss_weight}')

    def _ranked(self, cls_score: Tensor, label: Any,
                weight: Tensor | None) -> tuple[Tensor, Tensor]:
        """Scores of classes and labels of the samples that take part."""
        if not isinstance(label, Tensor) or label.dim() != 1 \
                or label.is_floating_point():
            kind = (f'shape {tuple(label.shape)}, {label.dtype}'
                    if isinstance(label, Tensor) else type(label).__name__)
            raise ValueError(
                'RaMBOLoss takes one integer label a sample, shape (N,), but '
                f'got {kind}; soft or multi-label targets are not ranked')
        if cls_score.dim() != 2 or len(cls_score) != len(label):
            raise ValueError(
                'cls_score must have shape (N, C) with N labels, but got '
                f'{tuple(cls_score.shape)} and {len(label)} labels')
        scores = self._foreground(cls_score)
        keep = label >= 0
        if weight is not None:
            if weight.shape != label.shape:
                raise ValueError(
                    f'weight must have the shape of label, '
                    f'{tuple(label.shape)}, but got {tuple(weight.shape)}')
            keep = keep & (weight > 0)
        if bool((label > scores.shape[1]).any()):
            raise ValueError(
                f'labels must be at most {scores.shape[1]}, the background, '
                f'for {scores.shape[1]} classes, but got {int(label.max())}; '
                "check the head's and the data set's number of classes")
        if not bool(keep.all()):
            scores, label = scores[keep], label[keep]
        return scores.to(torch.promote_types(
            scores.dtype, torch.float32)), label

    def _foreground(self, cls_score: Tensor) -> Tensor:
        columns = cls_score.shape[-1]
        if self.num_classes is None:
            classes = columns if self.use_sigmoid else columns - 1
        elif columns in (self.num_classes, self.num_classes + 1):
            classes = self.num_classes
        else:
            raise ValueError(
                f'cls_score must have {self.num_classes} columns, or one '
                f'more for the background, but got {columns}')
        if classes < 1:
            raise ValueError('cls_score has no column of a class, its shape '
                             f'is {tuple(cls_score.shape)}')
        return cls_score if classes == columns else cls_score[..., :classes]

    def _others(self, learning: bool) -> Collectives | None:
        # in evaluation processes may hold different numbers of batches
        if not learning or self.distributed == 'local':
            return None
        comm = Collectives()
        return None if comm.size == 1 else comm

    def _recall(self, scores: Tensor) -> dict[str, Tensor] | None:
        seen = self.memory.read()
        if seen is None or seen['scores'].shape[1] == scores.shape[1]:
            return seen
        warnings.warn(
            f'the remembered scores are of {seen["scores"].shape[1]} classes,'
            f' the new ones of {scores.shape[1]}: the score memory of '
            'RaMBOLoss was emptied', stacklevel=4)
        self.memory.reset()
        return None

    def _terms(self, scores: Tensor, label: Tensor,
               seen: dict[str, Tensor] | None, learning: bool,
               comm: Collectives | None) -> Any:
        relevance = _one_hot(label, scores.shape[1])
        memory, memory_relevance = None, None
        if seen is not None:
            memory = seen['scores'].to(scores)
            memory_relevance = _one_hot(seen['labels'], scores.shape[1])
        margin = self.margin if learning else 0.0
        if learning and self.random_margin:
            scores = self._deviated(scores, relevance, None)
            if memory is not None:
                memory = self._deviated(memory, memory_relevance, comm)
            margin = 0.0
        return blackbox_map_terms(
            scores,
            relevance,
            margin=margin,
            lambda_val=self.lambda_val,
            memory_scores=memory,
            memory_relevance=memory_relevance,
            memory_in_cross_class=self.memory_in_cross_class,
            comm=comm,
            **self.weights)

    def _deviated(self, scores: Tensor, relevance: Tensor | None,
                  comm: Collectives | None) -> Tensor:
        """Scores moved by a random margin; equally on all of ``comm``."""
        assert relevance is not None
        seed = torch.randint(1 << 40, (1, ), device=scores.device)
        if comm is not None:
            seed = comm.sum(seed)
        generator = torch.Generator(scores.device).manual_seed(int(seed))
        noise = torch.randn(scores.shape, generator=generator,
                            device=scores.device).to(scores.dtype).abs()
        return scores + self.margin * (0.5 - relevance.to(scores)) * noise

    def _remember(self, scores: Tensor, label: Tensor, loss: Tensor,
                  comm: Collectives | None) -> None:
        scores = scores.detach()
        if self.memory_batches > 0:
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
        relevance = _one_hot(label, scores.shape[1])
        negatives = scores.masked_fill(relevance, -math.inf)
        keep = relevance.any(1)
        keep[negatives.topk(number, dim=0).indices.view(-1)] = True
        return scores[keep], label[keep]

    def _watch_positives(self, label: Tensor, num_classes: int) -> None:
        if self._empty_batches >= EMPTY_BATCHES:
            return
        empty = not bool((label < num_classes).any())
        self._empty_batches = self._empty_batches + 1 if empty else 0
        if self._empty_batches == EMPTY_BATCHES:
            warnings.warn(
                f'no sample of the last {EMPTY_BATCHES} batches was '
                'positive, so RaMBOLoss teaches nothing: check the labels, '
                'the class names and the assigner', stacklevel=4)


def _one_hot(label: Tensor, num_classes: int) -> Tensor:
    classes = torch.arange(num_classes, device=label.device)
    return label[:, None] == classes


def _check_number(name: str, value: float, low: float | None) -> None:
    fine = value > 0 if low is None else low <= value
    if not fine or not math.isfinite(value):
        bound = '> 0' if low is None else f'>= {low}'
        raise ValueError(
            f'{name} must be finite and {bound}, but got {value!r}')


def _check_reduction(reduction: str) -> None:
    if reduction != 'mean':
        raise ValueError(
            "RaMBOLoss is one number for a whole batch: reduction must be "
            f"'mean', but got {reduction!r}")
