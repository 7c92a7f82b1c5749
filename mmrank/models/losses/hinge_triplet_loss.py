"""The hinge triplet loss of the global batch, as a registered module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmrank.functional import (
    DISTANCES,
    hinge_triplet_losses,
    weighted_mean,
)
from mmrank.registry import MODELS
from mmrank.state import Collectives, current

from .global_batch import check_distributed


@MODELS.register_module()
class HingeTripletLoss(nn.Module):
    """:func:`mmrank.functional.hinge_triplet_loss` over all processes.

    Args:
        margin (float): the paper's t.
        distance (str): 'angular' (AHT) or 'euclidean' (HT).
        cross_terms (bool): mine d(a_i, p_j) and d(p_i, a_j) too, as HardNet.
        loss_weight (float): factor of the returned loss.
        distributed (str): with several processes, 'global' mines negatives
            in their joined batches and is the loss of these, the same on
            each; 'local' is that of each process's own batch.

    Raises:
        ValueError: for an unknown distance or ``distributed``, or a margin
            that is not > 0.
    """

    def __init__(self,
                 margin: float = 1.0,
                 distance: str = 'angular',
                 cross_terms: bool = False,
                 loss_weight: float = 1.0,
                 distributed: str = 'global') -> None:
        super().__init__()
        if distance not in DISTANCES:
            raise ValueError(f'distance must be one of {DISTANCES}, but got '
                             f'{distance!r}')
        if not margin > 0:
            raise ValueError(f'margin must be > 0, but got {margin!r}')
        self.margin = margin
        self.distance = distance
        self.cross_terms = cross_terms
        self.loss_weight = loss_weight
        self.distributed = check_distributed(distributed)

    def losses(self,
               anchors: Tensor,
               positives: Tensor,
               labels: Tensor | None = None) -> Tensor:
        """The unweighted loss of each triplet.

        Args:
            anchors (Tensor): this process's descriptors, shape (B, D).
            positives (Tensor): shape (B, D).
            labels (Tensor, optional): class ids, shape (B,); triplets of one
                class are no negatives of each other.

        Returns:
            Tensor: shape (sum of B over processes,), in process order; (B,)
            where ``distributed`` is 'local'.
        """
        if self.distributed == 'global':
            comm = current()
            anchors = comm.gather_with_gradient(anchors)
            positives = comm.gather_with_gradient(positives)
            if labels is not None:
                labels = _joined(comm, labels)
        return hinge_triplet_losses(
            anchors,
            positives,
            margin=self.margin,
            distance=self.distance,
            labels=labels,
            cross_terms=self.cross_terms)

    def reduce(self, losses: Tensor, weights: Tensor | None = None) -> Tensor:
        """The scalar loss.

        Args:
            losses (Tensor): what :meth:`losses` returned.
            weights (Tensor, optional): this process's weights, shape (B,),
                of mean 1 over the global batch.
        """
        if weights is not None and self.distributed == 'global':
            weights = _joined(current(), weights)
        return self.loss_weight * weighted_mean(losses, weights)

    def global_mean(self, losses: Tensor) -> Tensor:
        """The mean over the global batch, equal on all processes.

        Args:
            losses (Tensor): what :meth:`losses` returned.

        Returns:
            Tensor: a scalar without gradient; 0 for an empty batch.
        """
        total = torch.stack(
            [losses.detach().sum(), losses.new_tensor(float(len(losses)))])
        if self.distributed == 'local':
            total = current().sum(total)
        return total[0] / total[1].clamp_min(1)

    def forward(self,
                anchors: Tensor,
                positives: Tensor,
                weights: Tensor | None = None,
                labels: Tensor | None = None) -> Tensor:
        """The loss, a scalar attached to the graph."""
        return self.reduce(self.losses(anchors, positives, labels), weights)

    def extra_repr(self) -> str:
        return (f'margin={self.margin}, distance={self.distance!r}, '
                f'cross_terms={self.cross_terms}, '
                f'distributed={self.distributed!r}')


def _joined(comm: Collectives, tensor: Tensor) -> Tensor:
    return torch.cat(comm.gather(tensor))
