"""Average precision losses: of one list, and of a classifier's classes.

Legend: ``N`` ranked items, ``C`` classes, ``P`` relevant items (positives),
``M`` remembered items. :mod:`mmrank.functional.blackbox` has the equations.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from . import dense_ranks, score_pool
from .checks import (
    check_strength,
    checked_memory,
    checked_relevance,
    checked_rows,
    checked_share,
)
from .differentiable import Measured, differentiable
from .ranking_path import named_range, takes_dense_path
from .ranks import Communicator, Ranks, Rows, Rule, Term
from .sparse_ranks import outside_graphs


def blackbox_ap_loss(scores: Tensor,
                     relevance: Tensor,
                     *,
                     margin: float = 0.0,
                     lambda_val: float = 1.0,
                     valid: Tensor | None = None,
                     memory_scores: Tensor | None = None,
                     memory_relevance: Tensor | None = None,
                     memory_valid: Tensor | None = None,
                     comm: Communicator | None = None) -> Tensor:
    """The average precision loss of one list, blackbox-differentiated.

        L_AP = 1 - (1 / P) * sum over relevant i of  rank+_i / rank_i

    with ``g_i = n * rank+_i / (P * rank_i^2)``; ``rank+`` carries no
    gradient. See :mod:`mmrank.functional.blackbox` for the ranks and for
    ``lambda``.

    Args:
        scores (Tensor): shape (N,), floating point, higher is better. float16
            and bfloat16 are ranked in float32. Infinite scores have their
            place in the order.
        relevance (Tensor): shape (N,), boolean or 0/1 integers.
        margin (float): ``alpha`` >= 0; relevant scores are lowered and the
            others raised by half of it.
        lambda_val (float): ``lambda`` > 0.
        valid (Tensor, optional): bool, shape (N,), False where an item takes
            no part, as if it were cut away; its gradient is 0.
        memory_scores (Tensor, optional): shape (M,), remembered scores. They
            are ranked with the others and get no gradient.
        memory_relevance (Tensor, optional): shape (M,).
        memory_valid (Tensor, optional): bool, shape (M,), False where the
            memory is not filled yet.
        comm (Communicator, optional): the other processes, each calling with
            its own items, of any number, and with equal memories. The loss is
            that of the joined list, on every process; the gradient is scaled
            so that the mean over processes, which DDP takes, is its gradient.

    Returns:
        Tensor: a scalar in [0, 1), float32 or wider, attached to the graph; 0
        without relevant items. One NaN among the scores makes the loss and
        the gradient NaN, on all processes.

    Raises:
        ValueError: for shapes or types that do not fit, ``margin`` < 0 or
            ``lambda_val`` <= 0.

    Cost: O((N + M) log P) time at worst, mostly O(N + M), and O(N + M)
    memory; the N items are never sorted. Between processes 12 bytes a
    relevant item are gathered and 16 summed. Counts are exact integers.

    Source: RaMBO, Eq. 14, 21, 22 and Alg. 1, with the normalised rank of the
    authors' code.

    Example:
        >>> import torch
        >>> scores = torch.tensor([4., 3., 2., 1.], requires_grad=True)
        >>> relevance = torch.tensor([1, 0, 1, 0])
        >>> loss = blackbox_ap_loss(scores, relevance, lambda_val=10.)
        >>> loss.backward()
        >>> round(loss.item(), 4), scores.grad
        (0.1667, tensor([ 0.0000,  0.0250, -0.0250,  0.0000]))
    """
    relevance = checked_relevance('scores', scores, relevance, ('N',))
    memory = checked_memory(
        scores, memory_scores, memory_relevance, memory_valid)
    check_strength(margin, lambda_val)
    if memory is not None:
        memory = Rows(memory.scores[:, None], memory.relevance[:, None],
                      memory.valid)

    def measure(scores: Tensor) -> Measured:
        values, gradient = _measure(
            Rows(scores[:, None], relevance[:, None],
                 checked_rows('valid', valid, scores)),
            memory, margin, lambda_val, [Term(1.0, _rule(1.0), False, True)],
            comm)
        return values, gradient.view(-1)

    return differentiable(scores, measure)[0]


class MAPTerms(NamedTuple):
    """What :func:`blackbox_map_terms` returns; only ``loss`` has a gradient.

    Attributes:
        loss (Tensor): the weighted mean of the two terms.
        per_class (Tensor): ``L_mAP``.
        cross_class (Tensor): ``L_APc``.
    """
    loss: Tensor
    per_class: Tensor
    cross_class: Tensor


def blackbox_map_loss(scores: Tensor,
                      relevance: Tensor,
                      *,
                      margin: float = 0.0,
                      lambda_val: float = 1.0,
                      map_weight: float = 2.0,
                      cross_class_weight: float = 1.0,
                      valid: Tensor | None = None,
                      memory_scores: Tensor | None = None,
                      memory_relevance: Tensor | None = None,
                      memory_valid: Tensor | None = None,
                      memory_in_cross_class: bool = False,
                      comm: Communicator | None = None) -> Tensor:
    """The mean average precision loss of a classifier (RaMBO, Eq. 6, 23).

        L = (w_map * L_mAP + w_apc * L_APc) / (w_map + w_apc)

    ``L_mAP`` is the mean of :func:`blackbox_ap_loss` over the classes that
    have a relevant item in the batch or the memory, on any process;
    ``L_APc`` is that of all N * C scores in one list. ``lambda`` applies to
    ``L``: the weights and the mean over classes are inside ``g``.

    Args:
        scores (Tensor): shape (N, C), one column a class; otherwise as in
            :func:`blackbox_ap_loss`, as is all that is not said here.
        relevance (Tensor): shape (N, C).
        margin (float): ``alpha`` >= 0.
        lambda_val (float): ``lambda`` > 0.
        map_weight (float): ``w_map`` >= 0.
        cross_class_weight (float): ``w_apc`` >= 0.
        valid (Tensor, optional): bool, shape (N,), the rows that take part.
        memory_scores (Tensor, optional): shape (M, C).
        memory_relevance (Tensor, optional): shape (M, C).
        memory_valid (Tensor, optional): bool, shape (M,).
        memory_in_cross_class (bool): whether ``L_APc`` ranks the remembered
            scores too; in the authors' code it does not.
        comm (Communicator, optional): the other processes.

    Returns:
        Tensor: a scalar in [0, 1), attached to the graph; 0 without relevant
        items.

    Raises:
        ValueError: as :func:`blackbox_ap_loss`, or if both weights are 0.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
        >>> round(blackbox_map_loss(scores, torch.eye(2).bool()).item(), 4)
        0.0556
    """
    return blackbox_map_terms(
        scores,
        relevance,
        margin=margin,
        lambda_val=lambda_val,
        map_weight=map_weight,
        cross_class_weight=cross_class_weight,
        valid=valid,
        memory_scores=memory_scores,
        memory_relevance=memory_relevance,
        memory_valid=memory_valid,
        memory_in_cross_class=memory_in_cross_class,
        comm=comm).loss


def blackbox_map_terms(scores: Tensor,
                       relevance: Tensor,
                       *,
                       margin: float = 0.0,
                       lambda_val: float = 1.0,
                       map_weight: float = 2.0,
                       cross_class_weight: float = 1.0,
                       valid: Tensor | None = None,
                       memory_scores: Tensor | None = None,
                       memory_relevance: Tensor | None = None,
                       memory_valid: Tensor | None = None,
                       memory_in_cross_class: bool = False,
                       comm: Communicator | None = None) -> MAPTerms:
    """:func:`blackbox_map_loss` together with its two terms.

    Arguments and errors are those of :func:`blackbox_map_loss`.

    Returns:
        MAPTerms: ``loss``, attached to the graph, and the unweighted
        ``per_class`` and ``cross_class`` terms, detached.

    Example:
        >>> import torch
        >>> scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
        >>> terms = blackbox_map_terms(scores, torch.eye(2).bool())
        >>> terms.per_class.item(), round(terms.cross_class.item(), 4)
        (0.0, 0.1667)
    """
    relevance = checked_relevance('scores', scores, relevance, ('N', 'C'))
    memory = checked_memory(
        scores, memory_scores, memory_relevance, memory_valid)
    check_strength(margin, lambda_val)
    share = checked_share(map_weight, cross_class_weight)
    terms = [Term(share, _rule(share), True, True),
             Term(1 - share, _rule(1 - share), False, memory_in_cross_class)]

    def measure(scores: Tensor) -> Measured:
        own = Rows(scores, relevance, checked_rows('valid', valid, scores))
        return _measure(own, memory, margin, lambda_val, terms, comm)

    return MAPTerms(*differentiable(scores, measure))


def _measure(own: Rows, memory: Rows | None, margin: float,
             lambda_val: float, terms: list[Term],
             comm: Communicator | None) -> Measured:
    dense = takes_dense_path(
        own.scores, 0 if memory is None else memory.scores.numel(),
        together=comm is not None and comm.size > 1)
    way = dense_ranks.measure_rows if dense else _measure_sparsely
    with named_range(dense):
        return way(own, memory, margin, lambda_val, terms, comm)


_measure_sparsely = outside_graphs(score_pool.measure_rows)


def _rule(weight: float) -> Rule:
    """Eq. 21 with the rank among relevant items held fixed (Eq. 22)."""

    def rule(ranks: Ranks) -> tuple[Tensor, Tensor]:
        rank = (ranks.among_relevant + ranks.irrelevant_above).double()
        share = 1 / ranks.num_relevant
        value = ranks.irrelevant_above / rank * share
        return value, (weight / ranks.num_lists * share
                       * ranks.among_relevant / (rank * rank))

    return rule
