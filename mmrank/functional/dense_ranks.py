"""A rule's value and blackbox gradient in fixed shapes.

Of every list the relevant and the irrelevant scores are sorted into a table
each; whatever is not of a table stands in it at minus infinity. All ranks are
searches in the two tables. Irrelevant items do not move, so after the step
only the relevant ones are sorted again. Nothing depends on the data but the
numbers: no size, no branch, no wait for a device.

Legend: ``S`` lists, ``T`` items a list; ``N``, ``C``, ``M`` as in
:mod:`.average_precision_loss`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .differentiable import Measured
from .ranks import Communicator, Ranks, Rows, Rule, Term


class _Lists:
    """Shifted scores of ``S`` lists, at minus infinity where not valid.

    Args:
        scores (Tensor): shape (S, T), as they are.
        relevant (Tensor): bool, shape (S, T), False where not valid.
        length (Tensor | int): valid items a list, broadcast to (S, 1).
        margin (float): ``alpha``.
    """

    def __init__(self, scores: Tensor, relevant: Tensor,
                 length: Tensor | int, margin: float) -> None:
        self.irrelevant = ~relevant
        self.scores = scores if margin == 0 else torch.where(
            relevant, scores - margin / 2, scores + margin / 2)
        # float64 holds them exactly, and rules divide by them
        self.counts = relevant.sum(1, keepdim=True, dtype=torch.float64)
        self.length = length
        # what fills up the table ties with an item at minus infinity
        self.fill = (self.counts + (scores.shape[1] - length)).to(torch.int32)
        self.irrelevant_table = self.scores.masked_fill(
            relevant, -math.inf).sort(1).values

    def find(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Of each item, the places in the two tables that nothing above it
        has, once the relevant ones stand at these scores; int32, (S, T)."""
        table = scores.masked_fill(self.irrelevant, -math.inf).sort(1).values
        return (torch.searchsorted(table, scores, right=True, out_int32=True),
                torch.searchsorted(self.irrelevant_table, scores,
                                   out_int32=True).maximum(self.fill))

    def measure(self, rule: Rule, lambda_val: float, num_lists: Tensor,
                num_pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Sum of the rule's values, and its gradient, float64 (S, T)."""
        width = self.scores.shape[1]
        among, others = self.find(self.scores)
        value, slope = rule(Ranks(
            1 + width - among, width - others,
            self.counts.clamp(min=1), num_lists, num_pairs))
        scale = lambda_val * self.length
        step = (scale * slope).masked_fill(self.irrelevant, 0.)
        then_among, then_others = self.find(
            self.scores + step.to(self.scores.dtype))
        gained = among - then_among + (others - then_others).masked_fill(
            self.irrelevant, 0)
        # a list without items has no gradient
        unit = 1 / scale.clamp(min=lambda_val) if isinstance(
            scale, Tensor) else 1 / max(scale, lambda_val)
        return (value.masked_fill(self.irrelevant, 0.).sum(),
                gained.double() * unit)


def measure_lists(scores: Tensor, relevance: Tensor, valid: Tensor | None,
                  rule: Rule, margin: float, lambda_val: float,
                  comm: Communicator | None) -> Measured:
    """Value and gradient of lists that lie whole on one process."""
    length: Tensor | int = scores.shape[1]
    if valid is not None:
        relevance = relevance & valid
        scores = scores.masked_fill(~valid, -math.inf)
        length = valid.sum(1, keepdim=True, dtype=torch.float64)
    lists = _Lists(scores.contiguous(), relevance, length, margin)
    facts = torch.stack([
        scores.isnan().any().double(), lists.counts.sign().sum(),
        lists.counts.sum()])
    if comm is not None:
        facts = comm.sum(facts)
    is_nan, num_lists, num_pairs = facts.unbind()
    value, gradient = lists.measure(
        rule, lambda_val, num_lists.clamp(min=1), num_pairs.clamp(min=1))
    if comm is not None:
        value = comm.sum(value)
        gradient = gradient * comm.size
    is_nan = is_nan > 0
    return [value.masked_fill(is_nan, math.nan)], gradient.to(
        scores.dtype).masked_fill(is_nan, math.nan)


def measure_rows(own: Rows, memory: Rows | None, margin: float,
                 lambda_val: float, terms: list[Term],
                 comm: Communicator | None) -> Measured:
    """Value and gradient of the lists that a batch makes with a memory."""
    start, num_rows = 0, len(own.scores)
    if comm is not None:
        own, start = _gathered(own, comm)
    own = own.masked()
    joined = own
    length = own_length = own.number()
    if memory is not None:
        memory = memory.masked()
        joined = Rows(torch.cat([own.scores, memory.scores]),
                      torch.cat([own.relevance, memory.relevance]), None)
        length = length + memory.number()
    num_classes = own.scores.shape[1]
    values, gradients = [], []
    for term in terms:
        rows = joined if term.with_memory else own
        size = length if term.with_memory else own_length
        if term.by_class:
            lists = _Lists(rows.scores.t().contiguous(),
                           rows.relevance.t().contiguous(), size, margin)
        else:
            lists = _Lists(rows.scores.reshape(1, -1).contiguous(),
                           rows.relevance.reshape(1, -1),
                           size * num_classes, margin)
        num_lists = lists.counts.sign().sum().clamp(min=1)
        value, gradient = lists.measure(
            term.rule, lambda_val, num_lists, lists.counts.sum())
        values.append(value / num_lists)
        gradient = gradient.t() if term.by_class else gradient.view(
            rows.scores.shape)
        if len(gradient) > num_rows:
            gradient = gradient[start:start + num_rows]
        gradients.append(gradient.to(own.scores.dtype))
    total = sum(gradients[1:], gradients[0])
    if comm is not None:
        # the wrapper averages the processes' gradients
        total = total * comm.size
    loss = sum((term.weight * value for term, value in zip(
        terms[1:], values[1:])), terms[0].weight * values[0])
    is_nan = joined.scores.isnan().any()
    total = total.masked_fill(is_nan, math.nan)
    if own.valid is not None:
        total = total.masked_fill(
            ~own.valid[start:start + num_rows, None], 0.)
    return [each.masked_fill(is_nan, math.nan)
            for each in (loss, *values)], total


def _gathered(rows: Rows, comm: Communicator) -> tuple[Rows, int]:
    """The rows of all processes, and where our own begin."""
    pieces = comm.gather(rows.scores)
    valid = rows.valid
    return Rows(
        torch.cat(pieces), torch.cat(comm.gather(rows.relevance)),
        None if valid is None else torch.cat(comm.gather(valid))
    ), sum(map(len, pieces[:comm.index]))
