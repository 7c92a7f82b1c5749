"""RaMBO's recall loss for embeddings."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mmrank.functional import blackbox_recall_loss
from mmrank.registry import MODELS
from mmrank.state import BatchMemory

from .embedding_loss import EmbeddingContext, EmbeddingLoss

# what is remembered of a batch, by the argument ``memory``
_FIELDS = {
    'scores': ('scores', 'relevance'),
    'embeddings': ('embeddings', 'labels'),
}
# similarity, relevance and what takes part, each of shape (Q, G)
_Lists = tuple[Tensor, Tensor, Tensor]


@MODELS.register_module()
class RaMBORecallLoss(EmbeddingLoss):
    r"""Blackbox-differentiated recall at all K, with a memory.

    Every element q of the batch is a query. Its list are all other elements
    of the batch, by cosine similarity. With the relevant elements rel(q) of
    the list, and the number r of irrelevant ones above a relevant one,

    .. math::
        L = \frac{\sum_{q \in B \cup M} \sum_{i \in rel(q)} \ell(r_{qi})}
                 {\sum_{q \in B \cup M} |rel(q)|},
        \qquad \ell(k) = \log(1 + k)

    or :math:`\ell(\ell(r))` with 'loglog'. B are the lists of this batch, M
    those of the ``memory_batches`` batches before: with ``memory='scores'``,
    the paper's, each remembered list is one of **scores** as they were, ranked
    in itself. It counts in value and number of pairs and has no gradient. With
    ``memory='embeddings'`` there is no M; the remembered embeddings stand as
    further elements in the lists of B instead.

    An element whose class has no other member in its list is no query, but
    stands in the lists of the others. :func:`mmrank.functional
    .blackbox_recall_loss` has value and gradient of given lists.

    Args:
        lambda_val (float): the paper's lambda, > 0 (SOP 4; In-Shop, CUB 0.2).
        margin (float): the paper's alpha, >= 0 (SOP, CUB 0.02; In-Shop 0.05);
            acts in training only.
        memory_batches (int): the paper's tau, how many past batches are
            remembered; 0 for none.
        weighting (str): 'log' or 'loglog'.
        warmup_iters (int): in the first so many training steps the memory is
            neither read nor filled, so that nothing of a network that still
            changes fast is remembered. The count is in the state dict.
        loss_weight (float): multiplies the loss; ``lambda_val`` keeps its
            meaning.
        distributed (str): with several processes, 'global' is the loss of
            their joined batches, the same on each, as is the memory; 'local'
            is that of each process's own batch, and the memory differs.
        memory (str): 'scores' or 'embeddings', see above. Lists of scores
            take tau B^2 numbers, embeddings tau B D.
        scale_by_batches (bool): multiply every r by the number of batches
            whose lists are present, 1 + the remembered ones, as the authors'
            code does; only with ``memory='scores'``.

    Attributes:
        memory (BatchMemory): 'scores' and 'relevance', the B x B lists of a
            batch flattened, or normalised 'embeddings' and 'labels'; in the
            state dict. Neither read nor filled in evaluation mode or under
            ``torch.no_grad()``.

    Raises:
        ValueError: for values out of range, or for shapes that do not fit.

    A checkpoint with a memory of the other kind loads with a warning, and the
    memory starts empty.

    Source: Rolinek et al., CVPR 2020 (RaMBO), sections 4.3 and 5.1, Eq. 14,
    17, 20. The authors' code turns normalised ranks back by the number of all
    lists, not by the length of one: ``scale_by_batches``.

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
                 distributed: str = 'global',
                 memory: str = 'scores',
                 scale_by_batches: bool = False) -> None:
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
        if memory not in _FIELDS:
            raise ValueError(f'memory must be one of {tuple(_FIELDS)}, but '
                             f'got {memory!r}')
        if scale_by_batches and memory != 'scores':
            raise ValueError("scale_by_batches counts remembered lists; it "
                             f"needs memory='scores', but got {memory!r}")
        self.lambda_val = lambda_val
        self.margin = margin
        self.memory_batches = memory_batches
        self.weighting = weighting
        self.warmup_iters = warmup_iters
        self.remembers = memory
        self.scale_by_batches = scale_by_batches
        self.memory = BatchMemory(memory_batches, _FIELDS[memory])
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
        gallery, classes = batch, labels
        if remembering and self.remembers == 'embeddings':
            gallery, classes = self._with_embeddings(batch, labels)
        lists = own = _lists(batch, labels, gallery, classes, context.own)
        scale = 1
        if remembering and self.remembers == 'scores':
            lists = self._with_lists(own, context)
            if self.scale_by_batches:
                scale += len(self.memory)
        similarity, relevance, others = lists
        loss = blackbox_recall_loss(
            similarity, relevance, valid=others, rank_scale=scale,
            margin=self.margin if context.learning else 0.0,
            lambda_val=self.lambda_val, weighting=self.weighting,
            comm=context.comm)
        if remembering and not bool(loss.isnan()):
            self._remember(batch, labels, own, context)
        if context.learning:
            self.steps += 1
        return loss

    def reset(self) -> None:
        """Forget all that is remembered; the step count stays."""
        self.memory.reset()

    def extra_repr(self) -> str:
        return (f'lambda_val={self.lambda_val}, margin={self.margin}, '
                f'weighting={self.weighting!r}, memory={self.remembers!r}, '
                f'scale_by_batches={self.scale_by_batches}, '
                f'{super().extra_repr()}')

    def _remember(self, batch: Tensor, labels: Tensor, own: _Lists,
                  context: EmbeddingContext) -> None:
        if self.remembers == 'embeddings':
            self.memory.remember(embeddings=batch, labels=labels)
            return
        parts: tuple[Tensor, ...] = own[0], own[1] & own[2]
        if context.comm is not None:
            parts = tuple(
                torch.cat(context.comm.gather(part)) for part in parts)
        scores, relevance = (part.flatten() for part in parts)
        self.memory.remember(scores=scores, relevance=relevance)

    def _with_lists(self, own: _Lists, context: EmbeddingContext) -> _Lists:
        """This process's lists, and its share of the remembered ones.

        Batches may differ in size: what a shorter list lacks takes no part.
        """
        comm = context.comm
        # all remember the same: everyone ranks a part of it
        mine = slice(None) if comm is None else slice(
            comm.index, None, comm.size)
        blocks = [own]
        for seen in self.memory.batches():
            size = math.isqrt(len(seen['scores']))
            scores, relevance = (
                part.view(size, size)[mine].to(own[0].device)
                for part in (seen['scores'], seen['relevance']))
            others = ~torch.eye(size, dtype=torch.bool,
                                device=scores.device)[mine]
            blocks.append((scores.to(own[0]), relevance, others))
        width = max(block[0].shape[1] for block in blocks)
        similarity, relevance, others = (
            torch.cat([F.pad(block, (0, width - block.shape[1]))
                       for block in column])
            for column in zip(*blocks))
        return similarity, relevance, others

    def _with_embeddings(self, batch: Tensor,
                         labels: Tensor) -> tuple[Tensor, Tensor]:
        """The batch and the remembered embeddings, as one gallery."""
        seen = self.memory.read()
        if seen is not None \
                and seen['embeddings'].shape[1] != batch.shape[1]:
            warnings.warn(
                f'the remembered embeddings have '
                f'{seen["embeddings"].shape[1]} dimensions, the new ones '
                f'{batch.shape[1]}: the memory of RaMBORecallLoss was '
                'emptied', stacklevel=4)
            self.memory.reset()
            seen = None
        self._seen_labels = None if seen is None else seen['labels']
        if seen is None:
            return batch, labels
        return (torch.cat([batch, seen['embeddings'].to(batch)]),
                torch.cat([labels, seen['labels'].to(labels)]))

    def _has_pair(self, labels: Tensor) -> bool:
        seen = self._seen_labels
        return super()._has_pair(labels) or (
            seen is not None
            and bool(torch.isin(labels, seen.to(labels)).any()))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str,
                              *args: Any) -> None:
        for kind, fields in _FIELDS.items():
            keys = [f'{prefix}memory.{name}' for name in (*fields, 'lengths')]
            if kind == self.remembers or keys[0] not in state_dict:
                continue
            warnings.warn(
                f'the checkpoint of RaMBORecallLoss remembers {kind}, this '
                f'loss {self.remembers}: the memory starts empty. To resume '
                f'the run as it was, set memory={kind!r}', stacklevel=2)
            for key in keys:
                state_dict.pop(key, None)
        super()._load_from_state_dict(state_dict, prefix, *args)


def _lists(batch: Tensor, labels: Tensor, gallery: Tensor, classes: Tensor,
           own: slice) -> _Lists:
    """The lists of this process's queries, of which the gallery's first rows
    are the batch of all.

    So the processes share the work, and the gradient of a gallery element is
    summed over them where the batch was gathered.
    """
    similarity = batch[own] @ gallery.t()
    others = torch.ones_like(similarity, dtype=torch.bool)
    others[:, own].fill_diagonal_(False)
    return similarity, labels[own][:, None] == classes, others
