"""Blackbox differentiation of ranks, with any rule on top.

Source: Rolinek et al., "Optimizing Rank-based Metrics with Blackbox
Differentiation", CVPR 2020 (RaMBO). In its notation, with scores ``y``,
relevance ``t``, margin ``alpha`` and strength ``lambda``:

    y^_i    = y_i - alpha/2 if relevant, y_i + alpha/2 otherwise     (Eq. 14)
    rank_i  = 1 + relevant items strictly above i
                + irrelevant items above i or tied with it
    rank+_i = 1 + relevant items strictly above i
    g       = dL / d(rank / n),          y' = y^ + lambda * g
    dL/dy  := -(rank(y^) - rank(y')) / (n * lambda)                  (Alg. 1)

Ties are therefore pessimistic, and depend neither on the order of the items
nor on the device. The rank is divided by the list's length ``n``, as in the
authors' code, to which the values of ``lambda`` in the paper belong.

The gradient of a loss is computed at unit scale and only multiplied by the
incoming one: a loss weight, gradient accumulation or a loss scaler does not
change ``lambda``.

Only relevant items move, so everything follows from counts: in few operations
whose sizes follow from the data (:mod:`mmrank.functional.sparse_ranks`), or in
fixed shapes without waiting for a device
(:mod:`mmrank.functional.dense_ranks`); :mod:`mmrank.functional.ranking_path`
chooses.

A rule is what one ranking metric adds: it makes of the ranks of the relevant
items their values and the derivatives of the loss with respect to them.
:func:`blackbox_loss` does the rest, so another metric is ten lines.

Legend: ``Q`` lists (queries), ``G`` items a list.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from . import dense_ranks
from .checks import check_strength, checked_relevance
from .differentiable import Measured, differentiable
from .rank_counts import Items, pick
from .ranking_path import named_range, takes_dense_path
from .ranks import Communicator, Ranks, Rule
from .sparse_ranks import (
    Lists,
    agreed,
    find_positives,
    float64,
    has_nan,
    outside_graphs,
    rank_lists,
)

__all__ = ['Communicator', 'Ranks', 'Rule', 'blackbox_loss']


def blackbox_loss(scores: Tensor,
                  relevance: Tensor,
                  rule: Rule,
                  *,
                  margin: float = 0.0,
                  lambda_val: float = 1.0,
                  valid: Tensor | None = None,
                  comm: Communicator | None = None,
                  name: str = 'scores') -> Tensor:
    """A ranking metric of lists, blackbox-differentiated by its rule.

        L = sum over relevant (q, i) of v_qi,    (v, dL/d(rank)) = rule(ranks)

    Args:
        scores (Tensor): shape (Q, G), floating point, higher is better; half
            precision is ranked in float32.
        relevance (Tensor): shape (Q, G), boolean or 0/1 integers. A list with
            no relevant item contributes nothing.
        rule (Callable): makes of :class:`Ranks` the value of each relevant
            item and the derivative of the loss with respect to its rank,
            both float64 and elementwise. The values sum up to the loss: a
            mean over lists or pairs is divided by ``ranks.num_lists`` or
            ``ranks.num_pairs``, in the derivative too.
        margin (float): ``alpha`` >= 0; relevant scores are lowered and the
            others raised by half of it.
        lambda_val (float): ``lambda`` > 0.
        valid (Tensor, optional): shape (Q, G), False where an item is not in
            the list.
        comm (Communicator, optional): the other processes, each with lists
            of its own.
        name (str): what messages call the scores.

    Returns:
        Tensor: a scalar, float32 or wider, attached to the graph; 0 without
        relevant items, NaN if one score is.

    Raises:
        ValueError: for shapes or types that do not fit, ``margin`` < 0 or
            ``lambda_val`` <= 0.

    Time O(Q G log P) at worst for P relevant items a list.

    Source: RaMBO, Alg. 1, with the normalised rank of the authors' code.

    Example:
        >>> def mean_rank(ranks):
        ...     rank = (ranks.among_relevant + ranks.irrelevant_above).double()
        ...     return rank / ranks.num_pairs, rank.new_ones(
        ...         rank.shape) / ranks.num_pairs
        >>> scores = torch.tensor([[4., 3., 2., 1.]], requires_grad=True)
        >>> loss = blackbox_loss(
        ...     scores, torch.tensor([[1, 0, 1, 0]]), mean_rank)
        >>> loss.backward()
        >>> loss.item(), scores.grad  # ranks 1 and 3
        (2.0, tensor([[ 0.0000,  0.2500, -0.2500,  0.0000]]))
    """
    relevance = checked_relevance(name, scores, relevance, ('Q', 'G'))
    check_strength(margin, lambda_val)
    if valid is not None:
        valid = checked_relevance(name, scores, valid, ('Q', 'G'))

    def measure(scores: Tensor) -> Measured:
        dense = takes_dense_path(scores, together=(
            comm is not None and comm.size > 1))
        way = dense_ranks.measure_lists if dense else _measure_sparsely
        with named_range(dense):
            return way(scores, relevance, valid, rule, margin, lambda_val,
                       comm)

    return differentiable(scores, measure)[0]


@outside_graphs
def _measure_sparsely(scores: Tensor, relevance: Tensor,
                      valid: Tensor | None, rule: Rule, margin: float,
                      lambda_val: float, comm: Communicator | None
                      ) -> Measured:
    gradient = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    if valid is not None:
        # what takes no part stands below everything
        relevance = relevance & valid
        scores = scores.masked_fill(~valid, -math.inf)
    scores = scores.contiguous()
    at, _, positives = find_positives(scores, relevance)
    num_queries, width = scores.shape
    query_of = torch.div(at, max(1, width), rounding_mode='floor')
    counts = torch.bincount(query_of, minlength=num_queries)
    queries = counts.nonzero().view(-1)
    is_nan, (num_lists, num_pairs) = agreed(
        has_nan(scores), [len(queries), len(at)], comm)
    if is_nan:
        return [float64(scores, math.nan)], gradient.fill_(math.nan)
    value = float64(scores, 0.0)
    if len(at) > 0:
        list_of = pick((counts > 0).cumsum(0) - 1, query_of)
        lengths = float64(scores, [width]).expand(len(queries))
        num_irrelevant = None
        if valid is not None:
            lengths = pick(valid.double().sum(1), queries)
            num_irrelevant = lengths.long() - pick(counts, queries)
        if len(queries) < num_queries:
            scores = pick(scores, queries)
        lists = Lists(
            Items(scores, at + (list_of - query_of) * width, margin / 2),
            lambda at, lists: at + (pick(queries, lists) - lists) * width,
            None, positives - margin / 2, list_of, 0, lengths, num_lists,
            num_pairs, num_irrelevant)
        value = rank_lists(lists, rule, lambda_val, None, gradient)
    if comm is not None:
        value = comm.sum(value)
        gradient *= comm.size
    return [value], gradient
