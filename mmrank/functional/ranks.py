"""The ranks that a rule reads, and the processes they are counted over."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class Ranks(NamedTuple):
    """The ranks of relevant items, as a rule reads them.

    All fields broadcast against the first one, whose shape is open: a rule
    computes elementwise. Entries that belong to no relevant item may occur;
    they hold 1 relevant item and are left out of value and gradient.

    Attributes:
        among_relevant (Tensor): integers, ``rank+``: 1 + relevant items of the
            same list strictly above.
        irrelevant_above (Tensor): integers, irrelevant items above or tied.
            ``rank`` is the sum of the two.
        num_relevant (Tensor): float64, the relevant items of the list.
        num_lists (Tensor | int): lists with a relevant item, of all
            processes.
        num_pairs (Tensor | int): relevant items of all lists and processes.
    """
    among_relevant: Tensor
    irrelevant_above: Tensor
    num_relevant: Tensor
    num_lists: Tensor | int
    num_pairs: Tensor | int


# ranks to the value of each relevant item, which sum up to the loss, and the
# derivative of the loss with respect to its rank; float64
Rule = Callable[[Ranks], tuple[Tensor, Tensor]]


class Term(NamedTuple):
    """One of the rankings whose weighted mean a loss is.

    Attributes:
        weight (float): its share.
        rule (Rule): the values are averaged over the lists; the slopes are
            those of the weighted mean.
        by_class (bool): a list for every class, or one of all scores.
        with_memory (bool): whether remembered scores are ranked too.
    """
    weight: float
    rule: Rule
    by_class: bool
    with_memory: bool


class Rows(NamedTuple):
    """Rows of scores: a batch, or a memory.

    Attributes:
        scores (Tensor): shape (N, C).
        relevance (Tensor): bool, shape (N, C).
        valid (Tensor, optional): bool, shape (N,), False where a row takes no
            part.
    """
    scores: Tensor
    relevance: Tensor
    valid: Tensor | None

    def kept(self) -> tuple[Tensor, Tensor]:
        """Scores and relevance of the valid rows alone."""
        if self.valid is None:
            return self.scores, self.relevance
        return self.scores[self.valid], self.relevance[self.valid]

    def masked(self) -> Rows:
        """At minus infinity and irrelevant where not valid."""
        if self.valid is None:
            return self
        valid = self.valid[:, None]
        return Rows(self.scores.masked_fill(~valid, -math.inf),
                    self.relevance & valid, self.valid)

    def number(self) -> Tensor | int:
        """Of valid rows."""
        if self.valid is None:
            return len(self.scores)
        return self.valid.sum(dtype=torch.float64)


class Communicator(Protocol):
    """What the losses need of the other processes.

    :class:`mmrank.state.Collectives` is one.
    """

    size: int
    index: int

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """The tensors of all processes, in process order."""

    def sum(self, tensor: Tensor) -> Tensor:
        """The elementwise sum over all processes."""
