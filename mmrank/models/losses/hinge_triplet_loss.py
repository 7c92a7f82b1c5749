"""The hinge triplet loss of the global batch, as a registered module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmrank.functional.triplets import (
    DISTANCES,
    hinge_triplet_losses,
    weighted_mean,
)
from mmrank.registry import MODELS
from mmrank.state import Collectives


@MODELS.register_module()
class HingeTripletLoss(nn.Module):
    """:func:`mmrank.functional.hinge_triplet_loss` over all processes.

    Negatives are those of the global batch: every process returns the loss
    of the joined batch, whose gradient under DDP is that of one process.

    Args:
        margin (float): the paper's t.
        distance (str): 'angular' (AHT) or 'euclidean' (HT).
        cross_terms (bool): mine d(a_i, p_j) and d(p_i, a_j) too, as HardNet.
        loss_weight (float): factor of the returned loss.

    Raises:
        ValueError: for an unknown distance, or a margin that is not > 0.
    """

    def __init__(self,
                 margin: float = 1.0,
                 distance: str = 'angular',
                 cross_terms: bool = False,
                 loss_weight: float = 1.0) -> None:
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

    def losses(self,
               anchors: Tensor,
               positives: Tensor,
               labels: Tensor | None = None) -> Tensor:
        """The unweighted loss of each triplet of the global batch.

        Args:
            anchors (Tensor): this process's descriptors, shape (B, D).
            positives (Tensor): shape (B, D).
            labels (Tensor, optional): class ids, shape (B,); triplets of one
                class are no negatives of each other.

        Returns:
            Tensor: shape (sum of B over processes,), in process order.
        """
        comm = Collectives()
        if labels is not None:
            labels = _joined(comm, labels)
        return hinge_triplet_losses(
            comm.gather_with_gradient(anchors),
            comm.gather_with_gradient(positives),
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
        if weights is not None:
            weights = _joined(Collectives(), weights)
        return self.loss_weight * weighted_mean(losses, weights)

    def forward(self,
                anchors: Tensor,
                positives: Tensor,
                weights: Tensor | None = None,
                labels: Tensor | None = None) -> Tensor:
        """The loss of the global batch, a scalar attached to the graph."""
        return self.reduce(self.losses(anchors, positives, labels), weights)

    def extra_repr(self) -> str:
        return (f'margin={self.margin}, distance={self.distance!r}, '
                f'cross_terms={self.cross_terms}')


def _joined(comm: Collectives, tensor: Tensor) -> Tensor:
    return torch.cat(comm.gather(tensor))
