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

# items handled at once: their temporaries stay in the cache
_BLOCK_CPU = 1 << 16
_BLOCK_CUDA = 1 << 22
# cells of the look-up table: a multiple of P, of at most this many in all
_CELLS_PER_ITEM = 16
_MOST_CELLS = 1 << 19
# places that a search tries one by one before it bisects
_STEPS = 2


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
        next_list = self.first_places() + self.counts + 1
        return (from_here[self.places() + 1] -
                from_here[next_list[self.lists]])

    def next_above(self) -> Tensor:
        """Per place, the lowest relevant score above it, shape (P + S,).

        NaN, which no score reaches, where a list ends.
        """
        above = self.scores.new_full(
            (len(self.lists) + len(self.counts),), float('nan'))
        above[self.places()] = self.scores
        return above

    def places(self) -> Tensor:
        """The place right below each relevant item."""
        return self.lists + torch.arange(
            len(self.lists), device=self.lists.device)

    def first_places(self) -> Tensor:
        """Every list's place below all its relevant items."""
        return self.starts + torch.arange(
            len(self.starts), device=self.starts.device)


def climb(next_above: Tensor, scores: Tensor, place: Tensor, last: Tensor,
          longest: int) -> Tensor:
    """The places of scores, from places that they are known to reach.

    Args:
        next_above (Tensor): of the relevant items, shape (P + S,).
        scores (Tensor): shape (n,).
        place, last (Tensor): int64, shape (n,); the searched places lie
            between them, both of the same list.
        longest (int): upper bound of ``last - place``.
    """
    # mostly it is the next one or two; NaN ends a list
    for _ in range(_STEPS):
        place = place + (next_above[place] <= scores)
    rest = (next_above[place] <= scores).nonzero().view(-1)
    if len(rest) > 0:
        place[rest] = _bisect(
            next_above, scores[rest], place[rest], last[rest], longest)
    return place


def sink(next_above: Tensor, scores: Tensor, place: Tensor, first: Tensor,
         longest: int) -> Tensor:
    """The places of scores, from places that they cannot exceed."""
    for _ in range(_STEPS):
        # below a list's first place stands the NaN of the list before
        place = place - (next_above[place - 1] > scores).long()
    rest = (next_above[place - 1] > scores).nonzero().view(-1)
    if len(rest) > 0:
        place[rest] = _bisect(
            next_above, scores[rest], first[rest], place[rest], longest)
    return place


def _bisect(next_above: Tensor, scores: Tensor, first: Tensor, last: Tensor,
            longest: int) -> Tensor:
    if len(scores) > _BLOCK_CUDA:
        pieces = zip(*(part.split(_BLOCK_CUDA)
                       for part in (scores, first, last)))
        return torch.cat([
            _bisect(next_above, values, low, high, longest)
            for values, low, high in pieces
        ])
    for _ in range(longest.bit_length()):
        middle = (first + last) >> 1
        up = (next_above[middle] <= scores) & (first < last)
        first = torch.where(up, middle + 1, first)
        last = torch.where(up, last, torch.maximum(middle, first))
    return first


def positions(mask: Tensor) -> Tensor:
    """Where a flat mask that is mostly False is True, int64, ascending."""
    mask = mask.contiguous()
    if mask.is_cuda or len(mask) % 8 or mask.storage_offset() % 8:
        return mask.nonzero().view(-1)
    # eight at a time
    words = mask.view(torch.int64).nonzero()
    at = (words * 8 + torch.arange(8)).view(-1)
    return at[mask[at]]


class PlaceTable:
    """Finds places by a uniform grid over each list's relevant scores.

    The cell of a score is a monotone function of it, whatever the rounding,
    so the relevant items in lower cells are at or below it for certain, and
    only those in its own cell are left to compare with. Mostly that is none
    or one, so one comparison with the next one is made for all scores, and a
    search for the few that pass a second one.
    """

    def __init__(self, items: SortedItems) -> None:
        self.next_above = items.next_above()
        scores, counts = items.scores, items.counts
        per_item = max(1, min(_CELLS_PER_ITEM, _MOST_CELLS // len(scores)))
        big = torch.finfo(scores.dtype).max / 8
        low = scores[items.starts].clamp(-big, big)
        high = scores[items.ends - 1].clamp(-big, big)
        cells = (per_item * counts).to(scores.dtype)
        # abs: a list of 0.0 and -0.0 has the span -0.0
        self.scale = (cells / (high - low).abs()).clamp(max=big)
        # 1.5 empty cells below the lowest item: what is lower has place 0
        self.low = low - 1.5 / self.scale
        self.top = cells + 3
        owned = per_item * counts + 4
        offset = owned.cumsum(0) - owned
        self.offset = offset.to(torch.int32)
        cell = _cells(
            scores, self.low[items.lists], self.scale[items.lists],
            self.top[items.lists], self.offset[items.lists])
        inside = torch.bincount(
            cell, minlength=per_item * len(scores) + 4 * len(counts))
        # the lowest place in a cell: items of lower cells + number of the list
        step = inside.clone()
        step[offset[1:]] += 1
        self.lowest = step.cumsum(0).sub_(inside).to(torch.int32)

    def cells(self, scores: Tensor, rows: slice) -> Tensor:
        """The cell of each score, shape (rows, columns)."""
        return _cells(scores, self.low[rows, None], self.scale[rows, None],
                      self.top[rows, None], self.offset[rows, None])

    def find(self, scores: Tensor, rows: slice, out: Tensor) -> Tensor:
        """Writes the lowest possible places of scores, flat, to ``out``.

        Args:
            scores (Tensor): shape (rows, columns).
            rows (slice): the lists of the rows.
            out (Tensor): int32, shape (rows * columns,).

        Returns:
            Tensor: flat positions of those that stand higher still.
        """
        cells = self.cells(scores, rows).view(-1)
        scores = scores.reshape(-1)
        torch.index_select(self.lowest, 0, cells, out=out)
        out += scores >= self.next_above.index_select(0, out)
        return positions(scores >= self.next_above.index_select(0, out))


def _cells(scores: Tensor, low: Tensor, scale: Tensor, top: Tensor,
           offset: Tensor) -> Tensor:
    # separately rounded steps: each is monotone in the score, also where one
    # element is handled by vector and another by scalar code
    grid = scores - low
    grid.mul_(scale)
    torch.minimum(grid, top, out=grid)
    return grid.clamp_(min=0).to(torch.int32).add_(offset)


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
        higher = [items.relevant[:0]]
        for rows, columns, flat in _blocks(items):
            at = table.find(_lifted(items, rows, columns), rows,
                            self.places[flat])
            higher.append(at.add_(flat.start))
        at = torch.cat(higher)
        scores, lists = self._look_up(at)
        self.places[at] = climb(
            table.next_above, scores, self.places[at].long(),
            sorted_items.first_places()[lists] + sorted_items.counts[lists],
            int(sorted_items.counts.max())).to(torch.int32)

    def _look_up(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Lifted scores and lists of flat positions."""
        scores = self.items.scores.view(-1)[at]
        if self.items.lift:
            scores = scores + self.items.lift
        length = max(1, self.items.scores.shape[1])
        return scores, torch.div(at, length, rounding_mode='floor')

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
        # place 0 is never passed: the relevant items drop out
        self.places[self.items.relevant] = 0
        found = [self.items.relevant[:0]]
        for rows, columns, flat in _blocks(self.items):
            scores = _lifted(self.items, rows, columns).reshape(-1)
            at = positions(
                scores < reach.index_select(0, self.places[flat]))
            found.append(at.add_(flat.start))
        at = torch.cat(found)
        scores, lists = self._look_up(at)
        before = self.places[at].long()
        now = sink(moved.next_above(), scores, before,
                   moved.first_places()[lists], longest)
        return at, lists, before, before - now


def reach_of_movers(before: SortedItems, moved: SortedItems) -> Tensor:
    """Per place, the highest score a relevant item below it moved to."""
    place_in_moved = torch.empty_like(moved.order)
    place_in_moved[moved.order] = torch.arange(
        len(moved.order), device=moved.order.device)
    # positions grow from list to list, so one running maximum serves all
    highest = place_in_moved[before.order].cummax(0).values
    reach = before.scores.new_full(
        (len(before.lists) + len(before.counts),), -float('inf'))
    reach[before.places() + 1] = moved.scores[highest]
    return reach
