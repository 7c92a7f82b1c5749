"""RaMBO's recall loss for embeddings."""

from __future__ import annotations

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmrank.functional.ranking import blackbox_recall_loss
from mmrank.registry import MODELS
from mmrank.state import BatchMemory, Collectives

from .global_batch import EMPTY_BATCHES, check_distributed


@MODELS.register_module()
class RaMBORecallLoss(nn.Module):
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

    steps: Tensor

    def __init__(self,
                 lambda_val: float = 0.2,
                 margin: float = 0.02,
                 memory_batches: int = 3,
                 weighting: str = 'log',
                 warmup_iters: int = 0,
                 loss_weight: float = 1.0,
                 distributed: str = 'global') -> None:
        super().__init__()
        if not 0 < lambda_val < math.inf:
            raise ValueError(f'lambda_val must be finite and > 0, but got '
                             f'{lambda_val!r}')
        for name, value in dict(margin=margin, loss_weight=loss_weight,
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
        self.loss_weight = loss_weight
        self.distributed = check_distributed(distributed)
        self.memory = BatchMemory(memory_batches, ('embeddings', 'labels'))
        self.register_buffer('steps', torch.tensor(0))
        self._empty_batches = 0

    # a memory is not for graphs: a compiled model breaks its graph here
    @torch.compiler.disable
    def forward(self,
                embeddings: Tensor,
                labels: Tensor,
                proxies: Tensor | None = None) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings (Tensor): shape (B, D), floating point; normalised
                here, in float32 or wider.
            labels (Tensor): shape (B,), integers.
            proxies (Tensor, optional): ignored; the loss has none.

        Returns:
            Tensor: a scalar, float32 or wider; 0, attached to the graph,
            without relevant pairs; NaN where an embedding is not finite.
        """
        if embeddings.dim() != 2 or labels.shape != embeddings.shape[:1]:
            raise ValueError(
                'embeddings must have shape (B, D) and labels (B,), but got '
                f'{tuple(embeddings.shape)} and {tuple(labels.shape)}')
        if labels.is_floating_point():
            raise ValueError(f'labels must be integers, but got '
                             f'{labels.dtype}')
        learning = self.training and torch.is_grad_enabled()
        remembering = learning and bool(self.steps >= self.warmup_iters)
        comm = None
        if learning and self.distributed == 'global':
            comm = Collectives()
        dtype = torch.promote_types(embeddings.dtype, torch.float32)
        with torch.autocast(embeddings.device.type, enabled=False):
            queries = F.normalize(embeddings.to(dtype), dim=1)
            batch, batch_labels, start = queries, labels, 0
            if comm is not None and comm.size > 1:
                batch = comm.gather_with_gradient(queries)
                pieces = comm.gather(labels)
                batch_labels = torch.cat(pieces)
                start = sum(map(len, pieces[:comm.index]))
            seen = self._recall(batch) if remembering else None
            loss = self._rank(queries, labels, batch, batch_labels, start,
                              seen, learning, comm)
        if remembering and not bool(loss.isnan()):
            self.memory.remember(embeddings=batch, labels=batch_labels)
        if learning:
            self.steps += 1
            self._watch_pairs(loss, batch_labels, seen)
        return self.loss_weight * loss

    def reset(self) -> None:
        """Forget all remembered embeddings; the step count stays."""
        self.memory.reset()

    def extra_repr(self) -> str:
        return (f'lambda_val={self.lambda_val}, margin={self.margin}, '
                f'weighting={self.weighting!r}')

    def _rank(self, queries: Tensor, labels: Tensor, batch: Tensor,
              batch_labels: Tensor, start: int,
              seen: dict[str, Tensor] | None, learning: bool,
              comm: Collectives | None) -> Tensor:
        """This process's queries among the batch of all and the memory.

        The queries are rows ``start`` and following of the batch. So the
        processes share the work, and the gradient of a gallery element is
        summed over them where the batch was gathered.
        """
        if seen is not None:
            batch = torch.cat([batch, seen['embeddings'].to(batch)])
            batch_labels = torch.cat([batch_labels, seen['labels'].to(labels)])
        others = torch.ones(
            len(labels), len(batch), dtype=torch.bool, device=labels.device)
        others[:, start:].fill_diagonal_(False)
        return blackbox_recall_loss(
            queries @ batch.t(),
            labels[:, None] == batch_labels,
            margin=self.margin if learning else 0.0,
            lambda_val=self.lambda_val,
            weighting=self.weighting,
            valid=others,
            comm=comm)

    def _watch_pairs(self, loss: Tensor, labels: Tensor,
                     seen: dict[str, Tensor] | None) -> None:
        if self._empty_batches >= EMPTY_BATCHES:
            return
        # only a loss of exactly 0 can come from a batch without pairs
        empty = bool(loss == 0) and len(labels.unique()) == len(labels) and (
            seen is None or not bool(
                torch.isin(labels, seen['labels'].to(labels)).any()))
        self._empty_batches = self._empty_batches + 1 if empty else 0
        if self._empty_batches == EMPTY_BATCHES:
            warnings.warn(
                f'no two elements of the last {EMPTY_BATCHES} batches shared '
                'a class, so RaMBORecallLoss teaches nothing: take a sampler '
                'that draws several samples a class, such as '
                'ClassBalancedBatchSampler', stacklevel=4)

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
