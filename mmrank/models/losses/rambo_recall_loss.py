"""RaMBO's recall loss for embeddings."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrank.functional import blackbox_recall_loss
from mmrank.registry import MODELS
from mmrank.state import BatchMemory

from .embedding_loss import EmbeddingContext, EmbeddingLoss


@MODELS.register_module()
class RaMBORecallLoss(EmbeddingLoss):
    """Blackbox-differentiated recall at all K, with an embedding memory.

    Every element of the batch is a query; its gallery are all other elements
    of the batch and the remembered ones, by cosine similarity. The loss is
    :func:`mmrank.functional.blackbox_recall_loss` over all relevant pairs. An
    element whose class has no other member in the gallery is no query, but
    stands in the galleries of the others.

    Args:
        lambda_val (float): the paper's lambda, > 0 (SOP 4; In-Shop, CUB 0.2).
        margin (float): the paper's alpha, >= 0 (SOP, CUB 0.02; In-Shop 0.05);
            acts in training only.
        memory_batches (int): the paper's tau, how many past batches are
            remembered; 0 for none.
        weighting (str): 'log' or 'loglog'.
        warmup_iters (int): in the first so many training steps the memory is
            neither read nor filled, so that no embedding of a network that
            still changes fast is remembered. The count is in the state dict.
        loss_weight (float): multiplies the loss; ``lambda_val`` keeps its
            meaning.
        distributed (str): with several processes, 'global' is the loss of
            their joined batches, the same on each, as is the memory; 'local'
            is that of each process's own batch, and the memory differs.

    Attributes:
        memory (BatchMemory): normalised embeddings and labels, in the state
            dict; neither read nor filled in evaluation mode or under
            ``torch.no_grad()``.

    Raises:
        ValueError: for values out of range, or for shapes that do not fit.

    Source: Rolinek et al., CVPR 2020 (RaMBO), section 5.1, Eq. 14, 17, 20. The
    authors' code scales r by the number of query rows instead of the gallery
    size, which agrees only without a memory; this follows the equation.

    Example:
        >>> loss = RaMBORecallLoss(margin=0., memory_batches=0)
        >>> embeddings = torch.eye(3)[[0, 1, 1, 0]].requires_grad_()
        >>> loss(embeddings, torch.tensor([0, 1, 1, 0])).item()
        0.0
    """

    needs_pairs = True

    steps: Tensor

    def __init__(self,
                 lambda_val: float = 0.2,
                 margin: float = 0.02,
                 memory_batches: int = 3,
                 weighting: str = 'log',
                 warmup_iters: int = 0,
                 loss_weight: float = 1.0,
                 distributed: str = 'global') -> None:
        super().__init__(loss_weight, distributed)
        if not 0 < lambda_val < math.inf:
            raise ValueError(f'lambda_val must be finite and > 0, but got '
                             f'{lambda_val!r}')
        for name, value in dict(margin=margin,
                                warmup_iters=warmup_iters).items():
            if not 0 <= value < math.inf:
                raise ValueError(f'{name} must be finite and >= 0, but got '
                                 f'{value!r}')
        if weighting not in ('log', 'loglog'):
            raise ValueError("weighting must be 'log' or 'loglog', but got "
                             f'{weighting!r}')
        self.lambda_val = lambda_val
        self.margin = margin
        self.memory_batches = memory_batches
        self.weighting = weighting
        self.warmup_iters = warmup_iters
        self.memory = BatchMemory(memory_batches, ('embeddings', 'labels'))
        self.register_buffer('steps', torch.tensor(0))
        self._seen_labels: Tensor | None = None

    # a memory is not for graphs: a compiled model breaks its graph here
    @torch.compiler.disable
    def batch_loss(self, embeddings: Tensor, labels: Tensor,
                   context: EmbeddingContext) -> Tensor:
        """The loss; where it learns, also the step of the memory.

        0 without relevant pairs, NaN where an embedding is not finite.
        """
        remembering = context.learning and bool(
            self.steps >= self.warmup_iters)
        batch = F.normalize(embeddings, dim=1)
        seen = self._recall(batch) if remembering else None
        self._seen_labels = None if seen is None else seen['labels']
        loss = self._rank(batch, labels, seen, context)
        if remembering and not bool(loss.isnan()):
            self.memory.remember(embeddings=batch, labels=labels)
        if context.learning:
            self.steps += 1
        return loss

    def reset(self) -> None:
        """Forget all remembered embeddings; the step count stays."""
        self.memory.reset()

    def extra_repr(self) -> str:
        return (f'lambda_val={self.lambda_val}, margin={self.margin}, '
                f'weighting={self.weighting!r}, {super().extra_repr()}')

    def _rank(self, batch: Tensor, labels: Tensor,
              seen: dict[str, Tensor] | None,
              context: EmbeddingContext) -> Tensor:
        """This process's queries among the batch of all and the memory.

        So the processes share the work, and the gradient of a gallery element
        is summed over them where the batch was gathered.
        """
        own = context.own
        queries, query_labels = batch[own], labels[own]
        if seen is not None:
            batch = torch.cat([batch, seen['embeddings'].to(batch)])
            labels = torch.cat([labels, seen['labels'].to(labels)])
        others = torch.ones(len(queries), len(batch), dtype=torch.bool,
                            device=labels.device)
        others[:, own].fill_diagonal_(False)
        return blackbox_recall_loss(
            queries @ batch.t(),
            query_labels[:, None] == labels,
            margin=self.margin if context.learning else 0.0,
            lambda_val=self.lambda_val,
            weighting=self.weighting,
            valid=others,
            comm=context.comm)

    def _has_pair(self, labels: Tensor) -> bool:
        seen = self._seen_labels
        return super()._has_pair(labels) or (
            seen is not None
            and bool(torch.isin(labels, seen.to(labels)).any()))

    def _recall(self, embeddings: Tensor) -> dict[str, Tensor] | None:
        seen = self.memory.read()
        if seen is None \
                or seen['embeddings'].shape[1] == embeddings.shape[1]:
            return seen
        warnings.warn(
            f'the remembered embeddings have {seen["embeddings"].shape[1]} '
            f'dimensions, the new ones {embeddings.shape[1]}: the memory of '
            'RaMBORecallLoss was emptied', stacklevel=4)
        self.memory.reset()
        return None
