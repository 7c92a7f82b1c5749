"""The batch of all processes, as every metric-learning loss sees it."""

from __future__ import annotations

import torch
from torch import Tensor

from mmrank.state import Collectives

# after this many batches in a row that teach nothing a warning is due
EMPTY_BATCHES = 50


def join_batch(embeddings: Tensor, labels: Tensor,
               distributed: str) -> tuple[Tensor, Tensor]:
    """The embeddings and labels that a loss is computed on.

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
    comm = Collectives()
    return (comm.gather_with_gradient(embeddings),
            torch.cat(comm.gather(labels)))


def check_distributed(distributed: str) -> str:
    """``distributed`` itself; ValueError unless 'global' or 'local'."""
    if distributed not in ('global', 'local'):
        raise ValueError("distributed must be 'global' or 'local', but got "
                         f'{distributed!r}')
    return distributed


def check_proxies(proxies: Tensor | None, loss: str) -> Tensor:
    """The proxies; ValueError where the head has none."""
    if proxies is None:
        raise ValueError(f'{loss} needs proxies, a tensor of shape (C, D); '
                         'MetricLearningHead makes them from num_classes')
    return proxies
