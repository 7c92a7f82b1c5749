"""The lists that a batch of scores makes with a memory, over processes."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .differentiable import Measured
from .rank_counts import Items, pick
from .ranks import Communicator, Rows, Term
from .sparse_ranks import (
    Lists,
    agreed,
    find_positives,
    float64,
    has_nan,
    rank_lists,
)


class ScorePool:
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
        self.at, self.own_columns, positives = find_positives(
            self.scores, relevance)
        is_nan = has_nan(scores)
        if memory is not None:
            is_nan = is_nan | has_nan(memory[0])
        self.is_nan, (self.num_items, ) = agreed(
            is_nan, [len(scores)], comm)
        self.own_start = 0
        self.columns = self.own_columns
        if comm is not None:
            pieces = comm.gather(positives)
            positives = torch.cat(pieces)
            self.columns = torch.cat(comm.gather(self.own_columns))
            self.own_start = sum(map(len, pieces[:comm.index]))
        self.positives = positives - margin / 2

    def joined(self, with_memory: bool) -> Lists | None:
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
        return Lists(
            Items(self.scores.view(1, -1), self.at, self.margin / 2),
            lambda at, _: at, memory, positives, torch.zeros_like(columns),
            self.own_start, float64(
                self.scores, [length * self.scores.shape[1]]),
            1, len(positives))

    def by_class(self) -> Lists | None:
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

        return Lists(own, to_scores, memory, positives,
                     pick(list_of, columns), self.own_start, float64(
                         self.scores, [length]).expand(len(present)),
                     len(present), len(positives))

    def measure(self, lambda_val: float, terms: list[Term]) -> Measured:
        """The weighted sum of the terms, and each of them."""
        gradient = torch.zeros_like(self.scores)
        values = [float64(self.scores, 0.0) for _ in terms]
        if self.is_nan:
            nan = float64(self.scores, math.nan)
            return [nan] * (1 + len(terms)), gradient.fill_(math.nan)
        for index, term in enumerate(terms):
            lists = self.by_class() if term.by_class else self.joined(
                term.with_memory)
            if lists is not None:
                values[index] = rank_lists(
                    lists, term.rule, lambda_val, self.comm,
                    gradient) / lists.num_lists
        loss = sum(term.weight * value for value, term in zip(values, terms))
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
        _, columns, positives = find_positives(scores, relevance)
        if self.comm is not None:
            # all remember the same: everyone counts a part of it
            mine = slice(self.comm.index, None, self.comm.size)
            scores, relevance = scores[mine], relevance[mine]
        scores = scores.contiguous()
        at = find_positives(scores, relevance)[0]
        return ((scores, at),
                torch.cat([self.positives, positives - self.margin / 2]),
                torch.cat([self.columns, columns]))


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


def measure_rows(own: Rows, memory: Rows | None, margin: float,
                 lambda_val: float, terms: list[Term],
                 comm: Communicator | None) -> Measured:
    """Value and gradient of the lists that a batch makes with a memory."""
    scores, relevance = own.kept()
    pool = ScorePool(scores, relevance, None if memory is None else
                     memory.kept(), margin, comm)
    values, gradient = pool.measure(lambda_val, terms)
    if own.valid is not None:
        gradient = torch.zeros_like(
            own.scores, memory_format=torch.contiguous_format).index_copy_(
                0, own.valid.nonzero().view(-1), gradient)
    return values, gradient
