"""Blackbox-differentiated ranking losses: value and gradient in one pass.

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

Only relevant items move, so everything follows from counts, see
:mod:`mmrank.functional.rank_counts`.

Legend: ``N`` ranked items, ``C`` classes, ``P`` relevant items (positives),
``M`` remembered items, ``Q`` queries, ``G`` gallery items.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .rank_counts import (
    Communicator,
    Items,
    Places,
    PlaceTable,
    SortedItems,
    pick,
    positions,
    reach_of_movers,
)

_Function = TypeVar('_Function', bound=Callable[..., Any])


def _outside_graphs(function: _Function) -> _Function:
    """Sizes follow from the data: a compiled model breaks its graph here."""
    return torch.compiler.disable(function)  # type: ignore[no-any-return]


@_outside_graphs
def blackbox_ap_loss(scores: Tensor,
                     relevance: Tensor,
                     *,
                     margin: float = 0.0,
                     lambda_val: float = 1.0,
                     memory_scores: Tensor | None = None,
                     memory_relevance: Tensor | None = None,
                     comm: Communicator | None = None) -> Tensor:
    """The average precision loss of one list, blackbox-differentiated.

        L_AP = 1 - (1 / P) * sum over relevant i of  rank+_i / rank_i

    with ``g_i = n * rank+_i / (P * rank_i^2)``; ``rank+`` carries no
    gradient. See the module's head for the ranks and for ``lambda``.

    Args:
        scores (Tensor): shape (N,), floating point, higher is better. float16
            and bfloat16 are ranked in float32. Infinite scores have their
            place in the order.
        relevance (Tensor): shape (N,), boolean or 0/1 integers.
        margin (float): ``alpha`` >= 0; relevant scores are lowered and the
            others raised by half of it.
        lambda_val (float): ``lambda`` > 0.
        memory_scores (Tensor, optional): shape (M,), remembered scores. They
            are ranked with the others and get no gradient.
        memory_relevance (Tensor, optional): shape (M,).
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
    relevance = _checked('scores', scores, relevance, ('N',))
    memory = _checked_memory(scores, memory_scores, memory_relevance)
    _check_strength(margin, lambda_val)
    if memory is not None:
        memory = memory[0][:, None], memory[1][:, None]

    def measure(scores: Tensor) -> _Measured:
        pool = _Pool(scores[:, None], relevance[:, None], memory, margin,
                     comm)
        values, gradient = pool.measure(
            lambda_val, [_Term(1.0, pool.joined(True))])
        return values, gradient.view(-1)

    return _differentiable(scores, measure)[0]


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
                      memory_scores: Tensor | None = None,
                      memory_relevance: Tensor | None = None,
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
        memory_scores (Tensor, optional): shape (M, C).
        memory_relevance (Tensor, optional): shape (M, C).
        memory_in_cross_class (bool): whether ``L_APc`` ranks the remembered
            scores too; in the authors' code it does not.
        comm (Communicator, optional): the other processes.

    Returns:
        Tensor: a scalar in [0, 1), attached to the graph; 0 without relevant
        items.

    Raises:
        ValueError: as :func:`blackbox_ap_loss`, or if both weights are 0.

    Example:
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
        memory_scores=memory_scores,
        memory_relevance=memory_relevance,
        memory_in_cross_class=memory_in_cross_class,
        comm=comm).loss


@_outside_graphs
def blackbox_map_terms(scores: Tensor,
                       relevance: Tensor,
                       *,
                       margin: float = 0.0,
                       lambda_val: float = 1.0,
                       map_weight: float = 2.0,
                       cross_class_weight: float = 1.0,
                       memory_scores: Tensor | None = None,
                       memory_relevance: Tensor | None = None,
                       memory_in_cross_class: bool = False,
                       comm: Communicator | None = None) -> MAPTerms:
    """:func:`blackbox_map_loss` together with its two terms.

    Arguments and errors are those of :func:`blackbox_map_loss`.

    Returns:
        MAPTerms: ``loss``, attached to the graph, and the unweighted
        ``per_class`` and ``cross_class`` terms, detached.

    Example:
        >>> scores = torch.tensor([[.9, .25], [.5, .3]], requires_grad=True)
        >>> terms = blackbox_map_terms(scores, torch.eye(2).bool())
        >>> terms.per_class.item(), round(terms.cross_class.item(), 4)
        (0.0, 0.1667)
    """
    relevance = _checked('scores', scores, relevance, ('N', 'C'))
    memory = _checked_memory(scores, memory_scores, memory_relevance)
    _check_strength(margin, lambda_val)
    share = _checked_share(map_weight, cross_class_weight)

    def measure(scores: Tensor) -> _Measured:
        pool = _Pool(scores, relevance, memory, margin, comm)
        return pool.measure(lambda_val, [
            _Term(share, pool.by_class()),
            _Term(1 - share, pool.joined(memory_in_cross_class)),
        ])

    return MAPTerms(*_differentiable(scores, measure))


@_outside_graphs
def blackbox_recall_loss(similarity: Tensor,
                         relevance: Tensor,
                         *,
                         margin: float = 0.0,
                         lambda_val: float = 1.0,
                         weighting: str = 'log',
                         valid: Tensor | None = None,
                         comm: Communicator | None = None) -> Tensor:
    """The recall loss of queries against a gallery, blackbox-differentiated.

        L = mean over relevant pairs (q, i) of  l(r_qi),    l(k) = log(1 + k)

    or ``l(l(r))`` with 'loglog'; ``r_qi = rank_qi - rank+_qi`` is the number
    of irrelevant items above i in the list of q. With ``G_q`` items in that
    list, ``g_qi = G_q * l'(r_qi) / (number of relevant pairs)``.

    Args:
        similarity (Tensor): shape (Q, G), floating point, higher is nearer;
            precision, infinite and NaN values as in :func:`blackbox_ap_loss`.
        relevance (Tensor): shape (Q, G), boolean or 0/1 integers. A query
            with no relevant item contributes nothing.
        margin (float): ``alpha`` >= 0.
        lambda_val (float): ``lambda`` > 0.
        weighting (str): 'log' or 'loglog'.
        valid (Tensor, optional): shape (Q, G), False where an item is not in
            the query's list, such as the query itself.
        comm (Communicator, optional): the other processes, each with queries
            of its own; the mean is over the pairs of all of them.

    Returns:
        Tensor: a scalar >= 0, attached to the graph; 0 without relevant
        pairs.

    Raises:
        ValueError: for shapes or types that do not fit, or values out of
            range.

    Source: RaMBO, Eq. 14, 17, 20. The authors' code scales ``r`` by the number
    of query rows instead of the row length, which agrees only for a square
    matrix; this follows the equation.

    Example:
        >>> similarity = torch.tensor([[.9, .5, .1]], requires_grad=True)
        >>> relevance = torch.tensor([[0, 1, 0]])
        >>> loss = blackbox_recall_loss(similarity, relevance)
        >>> round(loss.item(), 4)  # log 2
        0.6931
    """
    relevance = _checked('similarity', similarity, relevance, ('Q', 'G'))
    _check_strength(margin, lambda_val)
    if weighting not in ('log', 'loglog'):
        raise ValueError("weighting must be 'log' or 'loglog', but got "
                         f'{weighting!r}')
    if valid is not None:
        valid = _checked('similarity', similarity, valid, ('Q', 'G'))

    def measure(scores: Tensor) -> _Measured:
        return _measure_recall(scores, relevance, valid, margin, lambda_val,
                               weighting == 'loglog', comm)

    return _differentiable(similarity, measure)[0]


# values (the first one is differentiated), and its gradient
_Measured = tuple[list[Tensor], Tensor]
# rank among relevant, irrelevant above, sorted items -> value, dL/d(rank)
_Rule = Callable[[Tensor, Tensor, SortedItems], tuple[Tensor, Tensor]]


@dataclass
class _Lists:
    """Ranked lists and where their items are.

    Attributes:
        own (Items): this process's items.
        to_scores (Callable): flat positions in ``own`` to those in the
            scores that the gradient belongs to.
        memory (Items, optional): this process's share of the remembered
            items, which only count.
        positives, lists (Tensor): shape (P,), the lowered scores of the
            relevant items of all processes and the memory, and their lists.
        own_start (int): where the own ones begin among them.
        lengths (Tensor): float64, shape (S,), items over all processes and
            the memory.
    """
    own: Items
    to_scores: Callable[[Tensor, Tensor], Tensor]
    memory: Items | None
    positives: Tensor
    lists: Tensor
    own_start: int
    lengths: Tensor


class _Term(NamedTuple):
    """A weighted part of a loss; without lists it is 0."""
    weight: float
    lists: _Lists | None


def _rank(lists: _Lists, rule: _Rule, lambda_val: float,
          comm: Communicator | None, gradient: Tensor) -> Tensor:
    """Sum of a rule's values; its blackbox gradient goes to ``gradient``."""
    counts = torch.bincount(lists.lists, minlength=len(lists.lengths))
    before = SortedItems(lists.positives, lists.lists, counts)
    table = PlaceTable(before, lists.own.lift)
    parts = [lists.own] if lists.memory is None else [lists.own, lists.memory]
    places = [Places(part, before, table) for part in parts]
    histogram = places[0].histogram()
    for others in places[1:]:
        histogram += others.histogram()
    irrelevant = _total(before.num_irrelevant_above(histogram), comm)
    rank_plus = 1 + before.num_above()
    value, slope = rule(rank_plus, irrelevant, before)

    unit = 1 / (lambda_val * lists.lengths)
    step = lambda_val * pick(lists.lengths, before.lists) * slope
    target = torch.empty_like(lists.positives).scatter_(
        0, before.order, before.scores + step.to(before.scores.dtype))
    moved = SortedItems(target, lists.lists, counts)
    reach = reach_of_movers(before, moved)
    for part, found in zip(parts, places):
        at, which, place, passed_by = found.passed(moved, reach)
        size = len(histogram)
        histogram -= torch.bincount(place, minlength=size)
        histogram += torch.bincount(place - passed_by, minlength=size)
        if part is lists.own:
            _add(gradient, lists.to_scores(at, which),
                 passed_by * pick(unit, which))
    irrelevant_then = _total(moved.num_irrelevant_above(histogram), comm)

    rank_then = 1 + moved.num_above() + irrelevant_then
    gained = torch.empty_like(rank_plus)
    gained.scatter_(0, before.order, rank_plus + irrelevant)
    gained.scatter_add_(0, moved.order, -rank_then)
    mine = slice(lists.own_start, lists.own_start + len(lists.own.relevant))
    which = lists.lists[mine]
    _add(gradient, lists.to_scores(lists.own.relevant, which),
         gained[mine] * -pick(unit, which))
    return value.sum()


def _total(counts: Tensor, comm: Communicator | None) -> Tensor:
    return counts if comm is None else comm.sum(counts)


def _add(gradient: Tensor, at: Tensor, values: Tensor) -> None:
    gradient.view(-1).index_add_(0, at, values.to(gradient.dtype))


class _Pool:
    """The items of a batch, of all processes, and of the memory.

    Args:
        scores (Tensor): shape (N, C), this process's items.
        relevance (Tensor): bool, shape (N, C).
        memory (tuple[Tensor, Tensor], optional): remembered scores and
            relevance (M, C), equal on all processes.
        margin (float): ``alpha``.
        comm (Communicator, optional): the other processes.
    """

    def __init__(self, scores: Tensor, relevance: Tensor,
                 memory: tuple[Tensor, Tensor] | None, margin: float,
                 comm: Communicator | None) -> None:
        self.comm, self.margin = comm, margin
        self.scores = scores.contiguous()
        self.memory = memory
        self.at, self.own_columns, positives = _find_positives(
            self.scores, relevance)
        is_nan = _has_nan(scores)
        if memory is not None:
            is_nan = is_nan | _has_nan(memory[0])
        self.is_nan, self.num_items = _agreed(is_nan, len(scores), comm)
        self.own_start = 0
        self.columns = self.own_columns
        if comm is not None:
            pieces = comm.gather(positives)
            positives = torch.cat(pieces)
            self.columns = torch.cat(comm.gather(self.own_columns))
            self.own_start = sum(map(len, pieces[:comm.index]))
        self.positives = positives - margin / 2

    def joined(self, with_memory: bool) -> _Lists | None:
        """One list of all items of all classes."""
        share, positives, columns = self._remembered(with_memory)
        if len(positives) == 0:
            return None
        length = self.num_items
        memory = None
        if share is not None and self.memory is not None:
            length += len(self.memory[0])
            at = share[1]
            memory = Items(share[0].reshape(1, -1), at, self.margin / 2)
        return _Lists(
            Items(self.scores.view(1, -1), self.at, self.margin / 2),
            lambda at, _: at, memory, positives, torch.zeros_like(columns),
            self.own_start, _float64(
                self.scores, [length * self.scores.shape[1]]))

    def by_class(self) -> _Lists | None:
        """A list for every class that has positives."""
        share, positives, columns = self._remembered(True)
        if len(positives) == 0:
            return None
        num_classes = self.scores.shape[1]
        counts = torch.bincount(columns, minlength=num_classes)
        present = counts.nonzero().view(-1)
        list_of = (counts > 0).cumsum(0) - 1
        length = self.num_items
        memory = None
        if share is not None and self.memory is not None:
            length += len(self.memory[0])
            memory = _transposed(share[0], present, share[1], list_of,
                                 self.margin / 2)
        own = _transposed(self.scores, present, self.at, list_of,
                          self.margin / 2)
        num_own = max(1, len(self.scores))

        def to_scores(at: Tensor, lists: Tensor) -> Tensor:
            return ((at - lists * num_own) * num_classes +
                    pick(present, lists))

        return _Lists(own, to_scores, memory, positives,
                      pick(list_of, columns), self.own_start, _float64(
                          self.scores, [length]).expand(len(present)))

    def measure(self, lambda_val: float, terms: list[_Term]) -> _Measured:
        """The weighted sum of average-precision losses, and the terms."""
        gradient = torch.zeros_like(self.scores)
        values = [_float64(self.scores, 0.0) for _ in terms]
        if self.is_nan:
            nan = _float64(self.scores, math.nan)
            return [nan] * (1 + len(terms)), gradient.fill_(math.nan)
        for index, (weight, lists) in enumerate(terms):
            if lists is not None:
                each = weight / len(lists.lengths)
                values[index] = _rank(
                    lists, _average_precision(each), lambda_val, self.comm,
                    gradient) / len(lists.lengths)
        loss = sum(weight * value
                   for value, (weight, _) in zip(values, terms))
        if self.comm is not None:
            # the wrapper averages the processes' gradients
            gradient *= self.comm.size
        return [torch.as_tensor(loss), *values], gradient

    def _remembered(
            self, wanted: bool
    ) -> tuple[tuple[Tensor, Tensor] | None, Tensor, Tensor]:
        """This process's share of the memory, and everybody's positives."""
        if not wanted or self.memory is None:
            return None, self.positives, self.columns
        scores, relevance = self.memory
        _, columns, positives = _find_positives(scores, relevance)
        if self.comm is not None:
            # all remember the same: everyone counts a part of it
            mine = slice(self.comm.index, None, self.comm.size)
            scores, relevance = scores[mine], relevance[mine]
        scores = scores.contiguous()
        at = _find_positives(scores, relevance)[0]
        return ((scores, at),
                torch.cat([self.positives, positives - self.margin / 2]),
                torch.cat([self.columns, columns]))


def _average_precision(weight: float) -> _Rule:
    """Eq. 21 with the rank among relevant items held fixed (Eq. 22)."""

    def rule(rank_plus: Tensor, irrelevant: Tensor,
             items: SortedItems) -> tuple[Tensor, Tensor]:
        rank = (rank_plus + irrelevant).double()
        share = pick(1 / items.counts.double(), items.lists)
        value = irrelevant / rank * share
        return value, weight * share * rank_plus / (rank * rank)

    return rule


def _measure_recall(scores: Tensor, relevance: Tensor, valid: Tensor | None,
                    margin: float, lambda_val: float, twice: bool,
                    comm: Communicator | None) -> _Measured:
    gradient = torch.zeros_like(scores, memory_format=torch.contiguous_format)
    if valid is not None:
        # what takes no part stands below everything
        relevance = relevance & valid
        scores = scores.masked_fill(~valid, -math.inf)
    scores = scores.contiguous()
    at, _, positives = _find_positives(scores, relevance)
    is_nan, num_pairs = _agreed(_has_nan(scores), len(at), comm)
    if is_nan:
        return [_float64(scores, math.nan)], gradient.fill_(math.nan)
    value = _float64(scores, 0.0)
    if len(at) > 0:
        num_queries, width = scores.shape
        query_of = torch.div(at, width, rounding_mode='floor')
        counts = torch.bincount(query_of, minlength=num_queries)
        queries = counts.nonzero().view(-1)
        list_of = pick((counts > 0).cumsum(0) - 1, query_of)
        lengths = _float64(scores, [width]).expand(len(queries))
        if valid is not None:
            lengths = pick(valid.double().sum(1), queries)
        if len(queries) < num_queries:
            scores = pick(scores, queries)

        def rule(_: Tensor, irrelevant: Tensor,
                 __: SortedItems) -> tuple[Tensor, Tensor]:
            above = irrelevant.double()
            value, slope = above.log1p(), 1 / (1 + above)
            if twice:
                value, slope = value.log1p(), slope / (1 + value)
            return value / num_pairs, slope / num_pairs

        lists = _Lists(
            Items(scores, at + (list_of - query_of) * width, margin / 2),
            lambda at, lists: at + (pick(queries, lists) - lists) * width,
            None, positives - margin / 2, list_of, 0, lengths)
        value = _rank(lists, rule, lambda_val, None, gradient)
    if comm is not None:
        value = comm.sum(value)
        gradient *= comm.size
    return [value], gradient


def _find_positives(scores: Tensor,
                    relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Flat positions, columns and scores of the relevant items."""
    at = positions(relevance.reshape(-1))
    return (at, at % max(1, scores.shape[1]),
            pick(scores.reshape(-1), at))


def _transposed(scores: Tensor, present: Tensor, at: Tensor, list_of: Tensor,
                lift: float) -> Items:
    """Items with one row a present class; ``at`` is flat in ``scores``."""
    num_items, num_classes = scores.shape
    if len(present) < num_classes:
        scores = scores.index_select(1, present)
    column = at % max(1, num_classes)
    row = torch.div(at, max(1, num_classes), rounding_mode='floor')
    return Items(scores.t().contiguous(),
                 pick(list_of, column) * num_items + row, lift)


def _has_nan(scores: Tensor) -> Tensor:
    if scores.numel() == 0:
        return scores.new_zeros((), dtype=torch.bool)
    return scores.amax().isnan()


def _agreed(is_nan: Tensor, number: int,
            comm: Communicator | None) -> tuple[bool, int]:
    """Whether any process has NaN, and the sum of a number over all."""
    if comm is None:
        return bool(is_nan), number
    facts = comm.sum(torch.stack(
        [is_nan.long(), is_nan.new_tensor(number, dtype=torch.long)]))
    return bool(facts[0]), int(facts[1])


def _float64(like: Tensor, value: float | list[int]) -> Tensor:
    return torch.tensor(value, dtype=torch.float64, device=like.device)


class _StoredGradient(torch.autograd.Function):

    @staticmethod
    def forward(ctx: Any, scores: Tensor,
                measure: Callable[[Tensor], _Measured]
                ) -> tuple[Tensor, ...]:
        values, gradient = measure(scores.detach())
        ctx.save_for_backward(gradient)
        values = [value.to(scores.dtype) for value in values]
        ctx.mark_non_differentiable(*values[1:])
        return tuple(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, incoming: Tensor,
                 *_: Tensor) -> tuple[Tensor, None]:
        gradient, = ctx.saved_tensors
        return gradient * incoming, None


def _differentiable(scores: Tensor, measure: Callable[[Tensor], _Measured]
                    ) -> tuple[Tensor, ...]:
    if scores.dtype in (torch.float16, torch.bfloat16):
        scores = scores.float()
    return _StoredGradient.apply(scores, measure)  # type: ignore


def _checked(name: str, scores: Tensor, relevance: Tensor,
             shape: tuple[str, ...]) -> Tensor:
    """The relevance as booleans."""
    if scores.dim() != len(shape):
        raise ValueError(f'{name} must have shape ({", ".join(shape)}), but '
                         f'got {tuple(scores.shape)}')
    if not scores.is_floating_point():
        raise ValueError(f'{name} must be floating point, but got '
                         f'{scores.dtype}')
    if relevance.shape != scores.shape:
        raise ValueError(
            f'relevance must have the shape of {name}, '
            f'{tuple(scores.shape)}, but got {tuple(relevance.shape)}')
    if relevance.is_floating_point() or relevance.is_complex():
        raise ValueError('relevance must be boolean or 0/1 integers (soft '
                         f'targets have no ranks), but got {relevance.dtype}')
    if relevance.dtype != torch.bool and bool((relevance >> 1).any()):
        raise ValueError('relevance must be boolean or 0/1 integers, but '
                         'holds others, such as '
                         f'{int(relevance[(relevance >> 1) != 0][0])}; for '
                         'labels compare them with the class first')
    return relevance.bool()


def _checked_memory(scores: Tensor, memory_scores: Tensor | None,
                    memory_relevance: Tensor | None
                    ) -> tuple[Tensor, Tensor] | None:
    if memory_scores is None and memory_relevance is None:
        return None
    if memory_scores is None or memory_relevance is None:
        raise ValueError('memory_scores and memory_relevance belong '
                         'together, but only one of them was given')
    if memory_scores.shape[1:] != scores.shape[1:]:
        raise ValueError(
            'memory_scores and scores must agree in all but their length, '
            f'but got {tuple(memory_scores.shape)} and '
            f'{tuple(scores.shape)}')
    shape = ('M', 'C')[:scores.dim()]
    relevance = _checked('memory_scores', memory_scores, memory_relevance,
                         shape)
    if len(memory_scores) == 0:
        return None
    dtype = torch.promote_types(scores.dtype, torch.float32)
    return memory_scores.detach().to(dtype), relevance


def _check_strength(margin: float, lambda_val: float) -> None:
    for name, value in (('margin', margin), ('lambda_val', lambda_val)):
        if not isinstance(value, Real):
            raise ValueError(f'{name} must be a number, but got {value!r}')
    if not 0 <= margin < math.inf:
        raise ValueError(f'margin must be finite and >= 0, but got {margin}')
    if not 0 < lambda_val < math.inf:
        raise ValueError('lambda_val must be finite and > 0, but got '
                         f'{lambda_val}')


def _checked_share(map_weight: float, cross_class_weight: float) -> float:
    """The share of the mAP term."""
    for name, weight in (('map_weight', map_weight),
                         ('cross_class_weight', cross_class_weight)):
        if not 0 <= weight < math.inf:
            raise ValueError(f'{name} must be finite and >= 0, but got '
                             f'{weight}')
    total = map_weight + cross_class_weight
    if total == 0:
        raise ValueError('map_weight and cross_class_weight must not both '
                         'be 0')
    return map_weight / total
