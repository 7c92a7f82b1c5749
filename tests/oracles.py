"""Slow textbook versions of the losses, as references for tests.

``argsort`` versions follow the paper's Algorithm 1 with sorts and an autograd
function whose backward ranks again; they hold where no two scores are equal.
``pairwise`` versions compare every pair and define what ties mean.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def argsort_rank(scores: Tensor) -> Tensor:
    """1 + number of higher scores along the last axis, by double argsort."""
    order = scores.argsort(dim=-1, descending=True)
    return order.argsort(dim=-1).to(scores.dtype) + 1


class ArgsortRank(torch.autograd.Function):
    """Normalised rank with the blackbox gradient (Algorithm 1)."""

    @staticmethod
    def forward(ctx, scores, lambda_val):
        rank = argsort_rank(scores) / scores.shape[-1]
        ctx.lambda_val = lambda_val
        ctx.save_for_backward(scores, rank)
        return rank

    @staticmethod
    def backward(ctx, incoming):
        scores, rank = ctx.saved_tensors
        moved = scores + ctx.lambda_val * incoming
        moved_rank = argsort_rank(moved) / scores.shape[-1]
        return -(rank - moved_rank) / ctx.lambda_val, None


def argsort_losses(scores: Tensor, relevance: Tensor, margin: float,
                   lambda_val: float) -> Tensor:
    """1 - AP of each list (Eq. 14, 21, 22), (..., n) -> (...); no ties."""
    shifted = scores + margin * (0.5 - relevance.to(scores.dtype))
    rank = ArgsortRank.apply(shifted, lambda_val) * scores.shape[-1]
    among = shifted.detach().masked_fill(~relevance, -torch.inf)
    precision = (argsort_rank(among) / rank).where(relevance, 0)
    return 1 - precision.sum(-1) / relevance.sum(-1)


def argsort_ap_loss(scores: Tensor, relevance: Tensor, margin: float,
                    lambda_val: float) -> Tensor:
    """The AP loss of one list; the second ranking is of positives only."""
    if not relevance.any():
        return scores.sum() * 0
    shifted = torch.where(relevance, scores - margin / 2,
                          scores + margin / 2)
    rank = ArgsortRank.apply(shifted, lambda_val) * len(scores)
    rank_plus = argsort_rank(shifted.detach()[relevance])
    return 1 - (rank_plus / rank[relevance]).mean()


def argsort_map_loss(scores: Tensor, relevance: Tensor, margin: float,
                     lambda_val: float,
                     memory: tuple[Tensor, Tensor] | None = None) -> Tensor:
    """The two-term detection loss, weights 2:1, all classes at once."""
    joined, targets = scores, relevance
    if memory is not None:
        joined = torch.cat([scores, memory[0]])
        targets = torch.cat([relevance, memory[1]])
    present = targets.any(0)
    lists = joined.t()[present], targets.t()[present]
    per_class = argsort_losses(*lists, margin, lambda_val).mean()
    cross_class = argsort_losses(
        scores.reshape(-1), relevance.reshape(-1), margin, lambda_val)
    return (2 * per_class + cross_class) / 3


def argsort_map_loss_by_class(scores: Tensor, relevance: Tensor,
                              margin: float, lambda_val: float) -> Tensor:
    """The same with a loop over the classes that have positives."""
    present = relevance.any(0).nonzero().view(-1).tolist()
    # the backward of scores[:, c] would fill a whole matrix for every class
    columns, targets = scores.unbind(1), relevance.unbind(1)
    per_class = sum(
        argsort_losses(columns[c], targets[c], margin, lambda_val)
        for c in present) / len(present)
    cross_class = argsort_losses(
        scores.reshape(-1), relevance.reshape(-1), margin, lambda_val)
    return (2 * per_class + cross_class) / 3


def argsort_recall_loss(similarity: Tensor, relevance: Tensor, margin: float,
                        lambda_val: float) -> Tensor:
    """The recall loss, 'log' (Eq. 17, 20); no ties."""
    shifted = similarity + margin * (0.5 - relevance.to(similarity.dtype))
    rank = ArgsortRank.apply(shifted, lambda_val) * similarity.shape[-1]
    among = shifted.detach().masked_fill(~relevance, -torch.inf)
    above = (rank - argsort_rank(among))[relevance]
    return above.log1p().mean()


def pairwise_rank(scores: Tensor, relevance: Tensor) -> Tensor:
    """Pessimistic ranks of one list: (N,) -> (N,)."""
    other, me = scores[None, :], scores[:, None]
    wins_tie = relevance[:, None] & ~relevance[None, :]
    above = (other > me) | (wins_tie & (other == me))
    return 1 + above.sum(1)


def pairwise_rank_plus(scores: Tensor, relevance: Tensor) -> Tensor:
    """Ranks among relevant items only: (N,) -> (N,)."""
    return 1 + (relevance[None, :] & (scores[None, :] > scores[:, None])
                ).sum(1)


def blackbox(scores: Tensor, relevance: Tensor, margin: float,
             lambda_val: float,
             rule: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
             ) -> tuple[Tensor, Tensor]:
    """Value and gradient of one list by comparing every pair.

    ``rule(rank, rank_plus, relevance)`` returns the value and
    dL / d(rank).
    """
    n = len(scores)
    shifted = torch.where(relevance, scores - margin / 2,
                          scores + margin / 2)
    rank = pairwise_rank(shifted, relevance)
    rank_plus = pairwise_rank_plus(shifted, relevance)
    value, slope = rule(rank.double(), rank_plus.double(), relevance)
    step = (lambda_val * n * slope).to(scores.dtype)
    moved = torch.where(relevance, shifted + step, shifted)
    moved_rank = pairwise_rank(moved, relevance)
    gradient = -(rank - moved_rank).double() / (lambda_val * n)
    return value, gradient


def pairwise_ap(scores: Tensor, relevance: Tensor, margin: float,
                lambda_val: float, weight: float = 1.0
                ) -> tuple[Tensor, Tensor]:
    """Value (unweighted) and gradient (of the weighted loss) of one list."""

    def rule(rank, rank_plus, relevance):
        share = 1 / relevance.sum().double()
        value = ((rank - rank_plus) / rank * share)[relevance].sum()
        slope = weight * share * rank_plus / rank**2
        return value, torch.where(relevance, slope, 0.0)

    if not relevance.any():
        return scores.new_zeros((), dtype=torch.float64), torch.zeros(
            len(scores), dtype=torch.float64)
    return blackbox(scores, relevance, margin, lambda_val, rule)


def pairwise_map(scores: Tensor, relevance: Tensor, margin: float = 0.0,
                 lambda_val: float = 1.0, map_weight: float = 2.0,
                 cross_class_weight: float = 1.0,
                 memory: tuple[Tensor, Tensor] | None = None,
                 memory_in_cross_class: bool = False
                 ) -> tuple[Tensor, Tensor]:
    """Value and gradient (N, C) of the two-term loss."""
    if memory is None:
        memory = scores[:0], relevance[:0]
    n, num_classes = scores.shape
    joined = torch.cat([scores, memory[0]])
    targets = torch.cat([relevance, memory[1]])
    total = map_weight + cross_class_weight
    share, cross_share = map_weight / total, cross_class_weight / total
    present = targets.any(0).nonzero().view(-1).tolist()
    value, gradient = 0.0, torch.zeros(n, num_classes, dtype=torch.float64)
    for c in present:
        part, slope = pairwise_ap(joined[:, c], targets[:, c], margin,
                                  lambda_val, share / len(present))
        value = value + share * part / len(present)
        gradient[:, c] += slope[:n]
    if not memory_in_cross_class:
        joined, targets = scores, relevance
    part, slope = pairwise_ap(joined.reshape(-1), targets.reshape(-1), margin,
                              lambda_val, cross_share)
    value = value + cross_share * part
    gradient += slope.view(-1, num_classes)[:n]
    return torch.as_tensor(value, dtype=torch.float64), gradient


def pairwise_recall(similarity: Tensor, relevance: Tensor,
                    margin: float = 0.0, lambda_val: float = 1.0,
                    weighting: str = 'log', valid: Tensor | None = None
                    ) -> tuple[Tensor, Tensor]:
    """Value and gradient (Q, G) of the recall loss (Eq. 17, 20)."""
    if valid is None:
        valid = torch.ones_like(relevance)
    relevance = relevance & valid
    pairs = relevance.sum().double()

    def rule(rank, rank_plus, relevance):
        above = rank - rank_plus
        value, slope = above.log1p(), 1 / (1 + above)
        if weighting == 'loglog':
            value, slope = value.log1p(), slope / (1 + value)
        slope = torch.where(relevance, slope / pairs, 0.0)
        return value[relevance].sum() / pairs, slope

    value = torch.zeros((), dtype=torch.float64)
    gradient = torch.zeros(similarity.shape, dtype=torch.float64)
    for q in relevance.any(1).nonzero().view(-1).tolist():
        keep = valid[q]
        part, slope = blackbox(similarity[q][keep], relevance[q][keep],
                               margin, lambda_val, rule)
        value = value + part
        gradient[q, keep] = slope
    return value, gradient
