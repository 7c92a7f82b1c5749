"""Exact ranks of the relevant items of many lists, as counts.

A rank is a count, so nothing is sorted but the relevant items: one table
look-up of all items among the sorted relevant ones tells how many irrelevant
items stand above each of them. After the relevant items have moved up, only
those irrelevant ones that stood below a mover which now is above them have a
new place; all others keep theirs.

Legend: ``S`` lists (a class, a query), ``L`` items a list, ``P`` relevant
items of all lists together. A list's "places" are the gaps between its
relevant items: place ``b`` has ``b`` relevant items at or below it. Places of
all lists are numbered through, so list ``s`` with ``P_s`` relevant items owns
``P_s + 1`` of the ``P + S`` place numbers.

Every list must have at least one relevant item, here or in another process.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

# items handled at once: their temporaries stay in a core's second-level cache
_BLOCK_CPU = 1 << 15
_BLOCK_CUDA = 1 << 24
# cells of the look-up table: a multiple of P, of at most this many in all
_CELLS_PER_ITEM = 32
_MOST_CELLS = 1 << 19


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


@dataclass
class Items:
    """Items of ``S`` lists on this process.

    Attributes:
        scores (Tensor): shape (S, L), contiguous.
        relevant (Tensor): int64, flat positions of the relevant ones.
        lift (float): added to the irrelevant items' scores.
    """
    scores: Tensor
    relevant: Tensor
    lift: float = 0.0


class SortedItems:
    """The relevant items of all lists, sorted by list, then by score.

    Args:
        scores (Tensor): shape (P,).
        lists (Tensor): int64, shape (P,), the list of each.
        num_lists (int): ``S``.
    """

    def __init__(self, scores: Tensor, lists: Tensor,
                 num_lists: int) -> None:
        self.order = scores.argsort()
        if num_lists > 1:
            by_list = lists[self.order].argsort(stable=True)
            self.order = self.order[by_list]
        self.scores = scores[self.order]
        self.lists = lists[self.order]
        self.counts = torch.bincount(lists, minlength=num_lists)
        self.ends = self.counts.cumsum(0)
        self.starts = self.ends - self.counts

    def num_above(self) -> Tensor:
        """Relevant items of the same list with a strictly higher score."""
        fresh = torch.ones_like(self.lists, dtype=torch.bool)
        torch.logical_or(
            self.scores[1:] != self.scores[:-1],
            self.lists[1:] != self.lists[:-1], out=fresh[1:])
        tie = fresh.cumsum(0) - 1
        tie_ends = torch.bincount(tie).cumsum(0)
        return self.ends[self.lists] - tie_ends[tie]

    def num_irrelevant_above(self, histogram: Tensor) -> Tensor:
        """Irrelevant items at or above each, from their number per place."""
        from_here = histogram.new_zeros(len(histogram) + 1)
        from_here[:-1] = histogram.flip(0).cumsum(0).flip(0)
        here = torch.arange(len(self.lists), device=self.lists.device)
        next_list = self.ends + torch.arange(
            1, len(self.ends) + 1, device=self.lists.device)
        return (from_here[here + self.lists + 1] -
                from_here[next_list[self.lists]])

    def search(self, scores: Tensor, first: Tensor, last: Tensor,
               longest: int) -> Tensor:
        """Number of sorted items at or below each score.

        Args:
            scores (Tensor): shape (n,).
            first, last (Tensor): int64, shape (n,); the answer is known to
                lie in ``first..last``, both within one list.
            longest (int): upper bound of ``last - first``.
        """
        first, last = first.clone(), last.clone()
        for _ in range(int(longest).bit_length()):
            middle = (first + last) >> 1
            # where the range is already empty, middle may be P
            probe = self.scores.take(
                middle.clamp_(max=len(self.scores) - 1))
            up = (probe <= scores) & (first < last)
            first = torch.where(up, middle + 1, first)
            last = torch.where(up, last, torch.maximum(middle, first))
        return first


class PlaceTable:
    """Finds places by a uniform grid over each list's relevant scores.

    The cell of a score is a monotone function of it, whatever the rounding,
    so the relevant items in lower cells are at or below it for certain, and
    only scores that share a cell with relevant items need a search there.
    """

    def __init__(self, items: SortedItems) -> None:
        self.items = items
        scores, counts = items.scores, items.counts
        per_item = max(1, min(_CELLS_PER_ITEM, _MOST_CELLS // len(scores)))
        dtype = scores.dtype
        big = torch.finfo(dtype).max / 8
        low = scores[items.starts].clamp(-big, big)
        high = scores[items.ends - 1].clamp(-big, big)
        cells = (per_item * counts).to(dtype)
        # abs: a list of 0.0 and -0.0 has the span -0.0
        self.scale = (cells / (high - low).abs()).clamp(max=big)
        # 1.5 empty cells below the lowest item: what is lower needs no search
        self.low = low - 1.5 / self.scale
        self.top = cells + 3
        owned = per_item * counts + 4
        self.offset = owned.cumsum(0) - owned
        num_cells = per_item * len(scores) + 4 * len(counts)
        cell = self.cells(scores, self.low[items.lists],
                          self.scale[items.lists], self.top[items.lists])
        cell += self.offset[items.lists].to(torch.int32)
        inside = torch.bincount(cell, minlength=num_cells)
        self.below = inside.cumsum(0) - inside
        self.inside = inside
        self.fullest = int(inside.max())
        lists = torch.repeat_interleave(
            torch.arange(len(counts), device=counts.device), owned)
        # cells that need a search are marked by a negative number
        places = self.below + lists
        self.places = torch.where(inside > 0, -1 - places,
                                  places).to(torch.int32)
        self.offset = self.offset.to(torch.int32)

    @staticmethod
    def cells(scores: Tensor, low: Tensor, scale: Tensor,
              top: Tensor) -> Tensor:
        # four separately rounded steps: each is monotone in the score, also
        # where one element is handled by vector and another by scalar code
        grid = scores - low
        grid.mul_(scale)
        torch.minimum(grid, top, out=grid)
        grid.clamp_(min=0)
        return grid.to(torch.int32)

    def find(self, scores: Tensor, rows: slice, out: Tensor) -> None:
        """Writes the places of scores (rows, columns), flat, to ``out``."""
        cells = self.cells(scores, self.low[rows, None],
                           self.scale[rows, None], self.top[rows, None])
        if len(self.offset) > 1:
            cells += self.offset[rows, None]
        cells = cells.view(-1)
        torch.index_select(self.places, 0, cells, out=out)
        shared = (out < 0).nonzero().view(-1)
        if len(shared) == 0:
            return
        cells = cells[shared]
        below = self.below[cells]
        found = self.items.search(
            scores.reshape(-1)[shared], below, below + self.inside[cells],
            self.fullest)
        out[shared] = (found - below).to(torch.int32).sub_(out[shared]).sub_(1)


def _blocks(items: Items) -> Iterator[tuple[slice, slice, slice]]:
    """Rows, columns and flat range of blocks of a few items, in order."""
    num_rows, length = items.scores.shape
    size = _BLOCK_CUDA if items.scores.is_cuda else _BLOCK_CPU
    rows = max(1, size // max(1, length))
    for row in range(0, num_rows if length else 0, rows):
        row_end = min(row + rows, num_rows)
        step = length if rows > 1 else size
        for column in range(0, length, step):
            end = min(column + step, length)
            yield (slice(row, row_end), slice(column, end),
                   slice(row * length + column,
                         (row_end - 1) * length + end))


def _lifted(items: Items, rows: slice, columns: slice) -> Tensor:
    block = items.scores[rows, columns]
    return block + items.lift if items.lift else block


class Places:
    """The places of one set of items, and how they change.

    Args:
        items (Items): the items.
        sorted_items (SortedItems): relevant items of all processes.
        table (PlaceTable): the table over them.
    """

    def __init__(self, items: Items, sorted_items: SortedItems,
                 table: PlaceTable) -> None:
        self.items = items
        self.sorted = sorted_items
        self.places = items.scores.new_empty(
            items.scores.numel(), dtype=torch.int32)
        for rows, columns, flat in _blocks(items):
            table.find(_lifted(items, rows, columns), rows,
                       self.places[flat])

    def histogram(self) -> Tensor:
        """Irrelevant items per place, int64, shape (P + S,)."""
        size = len(self.sorted.lists) + len(self.sorted.counts)
        everything = torch.bincount(self.places, minlength=size)
        return everything - torch.bincount(
            self.places[self.items.relevant], minlength=size)

    def passed(self, moved: SortedItems, reach: Tensor,
               longest: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Irrelevant items that movers have passed.

        Args:
            moved (SortedItems): the relevant items after the move.
            reach (Tensor): shape (P + S,), the highest score that an item
                from below a place has moved to.
            longest (int): upper bound of the relevant items of a list.

        Returns:
            tuple: flat positions, lists, places before, and number of movers
            that passed; all int64 and equally long.
        """
        found = []
        # place 0 is never passed: the relevant items drop out
        self.places[self.items.relevant] = 0
        for rows, columns, flat in _blocks(self.items):
            scores = _lifted(self.items, rows, columns).reshape(-1)
            below = scores < reach.index_select(0, self.places[flat])
            at = below.nonzero().view(-1)
            found.append(at.add_(flat.start))
        at = torch.cat(found) if found else self.items.relevant[:0]
        scores = self.items.scores.view(-1)[at]
        if self.items.lift:
            scores = scores + self.items.lift
        lists = torch.div(
            at, self.items.scores.shape[1] or 1, rounding_mode='floor')
        before = self.places[at].long()
        last = before - lists
        now = moved.search(scores, self.sorted.starts[lists], last, longest)
        return at, lists, before, last - now


def reach_of_movers(before: SortedItems, moved: SortedItems) -> Tensor:
    """Per place, the highest score a relevant item below it moved to."""
    place_in_moved = torch.empty_like(moved.order)
    place_in_moved[moved.order] = torch.arange(
        len(moved.order), device=moved.order.device)
    # positions grow from list to list, so one running maximum serves all
    highest = place_in_moved[before.order].cummax(0).values
    reach = before.scores.new_full(
        (len(before.lists) + len(before.counts),), -float('inf'))
    here = torch.arange(len(before.lists), device=before.lists.device)
    reach[here + before.lists + 1] = moved.scores[highest]
    return reach
