"""The batch of all processes, as every metric-learning loss sees it."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrank.state import Collectives, current

# after this many batches in a row that teach nothing a warning is due
EMPTY_BATCHES = 50


def join_batch(embeddings: Tensor, labels: Tensor,
               distributed: str) -> tuple[Tensor, Tensor]:
    """The embeddings and labels that a loss is computed on.

    For a loss that is no :class:`EmbeddingLoss`, which joins by itself.

    Args:
        embeddings (Tensor): shape (B, D), this process's.
        labels (Tensor): shape (B,), this process's.
        distributed (str): 'global' joins the batches of all processes, in
            process order and with gradient, so that every process has the
            loss of the global batch; 'local' leaves each process its own
            batch. With either, DDP's mean over the gradients is right with no
            rescaling: the gradient of the global loss, or of the mean of the
            local ones.

    Returns:
        tuple[Tensor, Tensor]: embeddings and labels.
    """
    if distributed == 'local':
        return embeddings, labels
    return gather_batch(embeddings, labels, current())[:2]


def gather_batch(embeddings: Tensor, labels: Tensor,
                 comm: Collectives) -> tuple[Tensor, Tensor, int]:
    """Embeddings (with gradient) and labels of all processes, and where this
    one's begin."""
    pieces = comm.gather(labels)
    return (comm.gather_with_gradient(embeddings), torch.cat(pieces),
            sum(map(len, pieces[:comm.index])))


def check_distributed(distributed: str) -> str:
    """``distributed`` itself; ValueError unless 'global' or 'local'."""
    if distributed not in ('global', 'local'):
        raise ValueError("distributed must be 'global' or 'local', but got "
                         f'{distributed!r}')
    return distributed
