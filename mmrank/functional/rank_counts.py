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

import torch
from torch import Tensor

# items handled at once: their temporaries stay in the cache
_BLOCK_CPU = 1 << 17
_BLOCK_CUDA = 1 << 22
# cells of the look-up table: a multiple of P, of at most this many in all
_CELLS_PER_ITEM = 64
_MOST_CELLS = 1 << 19
# places that a search tries one by one before it bisects
_STEPS = 2


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
        counts (Tensor): int64, shape (S,), the number of each list's.

    Attributes:
        order (Tensor): positions of the sorted items in ``scores``.
        places (Tensor): the place right below each item.
        first, last (Tensor): shape (S,), each list's lowest and highest place.
    """

    def __init__(self, scores: Tensor, lists: Tensor,
                 counts: Tensor) -> None:
        self.scores, self.order = scores.sort()
        self.lists, self.counts = lists, counts
        if len(counts) > 1:
            by_list = pick(lists, self.order).argsort(stable=True)
            self.order = pick(self.order, by_list)
            self.scores = pick(self.scores, by_list)
            self.lists = pick(lists, self.order)
        self.ends = counts.cumsum(0)
        self.last = self.ends + _numbers(counts)
        self.first = self.last - counts
        self.places = self.lists + _numbers(lists)

    def num_above(self) -> Tensor:
        """Relevant items of the same list with a strictly higher score."""
        fresh = self.scores[1:] != self.scores[:-1]
        if len(self.counts) > 1:
            fresh |= self.lists[1:] != self.lists[:-1]
        tie = torch.zeros_like(self.lists)
        torch.cumsum(fresh, 0, out=tie[1:])
        tie_ends = torch.bincount(tie).cumsum(0)
        return pick(self.ends, self.lists) - pick(tie_ends, tie)

    def num_irrelevant_above(self, histogram: Tensor) -> Tensor:
        """Irrelevant items at or above each, from their number per place."""
        up_to = histogram.cumsum(0)
        return (pick(pick(up_to, self.last), self.lists) -
                pick(up_to, self.places))

    def next_below(self) -> Tensor:
        """Per place, the highest relevant score below it, shape (P + S + 1,).

        NaN, which compares to nothing, where a list ends. One place further
        on stands the lowest relevant score above it.
        """
        below = self.scores.new_full(
            (len(self.lists) + len(self.counts) + 1,), float('nan'))
        return below.scatter_(0, self.places + 1, self.scores)


def pick(values: Tensor, at: Tensor) -> Tensor:
    """``values[at]``, at half the cost."""
    return values.index_select(0, at)


def _numbers(like: Tensor) -> Tensor:
    return torch.arange(len(like), device=like.device)


def climb(next_above: Tensor, scores: Tensor, place: Tensor, lists: Tensor,
          items: SortedItems) -> Tensor:
    """The places of scores, from places that they are known to reach.

    Args:
        next_above (Tensor): relevant scores, shape (P + S,).
        scores (Tensor): shape (n,).
        place (Tensor): int32, shape (n,).
        lists (Tensor): int64, shape (n,), the lists of the places.
        items (SortedItems): the relevant items.
    """
    # mostly it is the next one or two
    for _ in range(_STEPS):
        place = place + (pick(next_above, place) <= scores)
    rest = positions(pick(next_above, place) <= scores)
    if len(rest) > 0:
        last = pick(items.last, pick(lists, rest)).to(place.dtype)
        place.scatter_(0, rest, _bisect(
            next_above, pick(scores, rest), pick(place, rest), last))
    return place


def sink(next_below: Tensor, scores: Tensor, place: Tensor, lists: Tensor,
         items: SortedItems) -> Tensor:
    """The places of scores, from places that they cannot exceed."""
    for _ in range(_STEPS):
        place = place - (pick(next_below, place) > scores).to(place.dtype)
    rest = positions(pick(next_below, place) > scores)
    if len(rest) > 0:
        first = pick(items.first, pick(lists, rest)).to(place.dtype)
        place.scatter_(0, rest, _bisect(
            next_below[1:], pick(scores, rest), first, pick(place, rest)))
    return place


def _bisect(next_above: Tensor, scores: Tensor, first: Tensor,
            last: Tensor) -> Tensor:
    if len(scores) > _BLOCK_CUDA:
        pieces = zip(*(part.split(_BLOCK_CUDA)
                       for part in (scores, first, last)))
        return torch.cat([
            _bisect(next_above, values, low, high)
            for values, low, high in pieces
        ])
    for _ in range(int((last - first).max()).bit_length()):
        middle = (first + last) >> 1
        up = (pick(next_above, middle) <= scores) & (first < last)
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
    at = words * 8 + torch.arange(8)
    return at.masked_select(pick(mask.view(-1, 8), words.view(-1)))


class PlaceTable:
    """Finds places by a uniform grid over each list's relevant scores.

    The cell of a score is a monotone function of it, whatever the rounding:
    between two cells with relevant items everything has the same place, and
    only what shares a cell with one is left to compare.

    Args:
        items (SortedItems): the relevant items.
        lift (float): that of the items to be found; it is taken off the
            relevant ones instead.
    """

    def __init__(self, items: SortedItems, lift: float) -> None:
        # x + lift, rounded, reaches a score if x > high, and not if x < low
        lowest = torch.full_like(items.scores[:1], -float('inf'))
        limits = torch.stack([torch.nextafter(items.scores, lowest),
                              items.scores]).sub_(lift)
        size = self._fit(items, limits[0], limits[1], lift)
        low, high = _cells(limits, *(pick(each, items.lists) for each in (
            self.low, self.scale, self.top, self.offset)))
        places = torch.zeros(size, dtype=torch.int32, device=low.device)
        # cells of later lists stand above all of this one
        for cells in (high, self.offset[1:] - 1):
            places.index_add_(0, cells + 1, torch.ones_like(cells))
        self.places = places.cumsum(0, dtype=torch.int32)
        # the grid is too coarse for a score's cells to have one between them
        shared = torch.cat([low, high])
        self.places.scatter_(
            0, shared.long(), pick(self.places, shared).bitwise_not_())

    def _fit(self, items: SortedItems, low: Tensor, high: Tensor,
             lift: float) -> int:
        """Lays the grid; an upper bound of the number of its cells."""
        limits = torch.finfo(low.dtype)
        big = limits.max / 8
        low = pick(low, items.ends - items.counts).clamp(-big, big)
        high = pick(high, items.ends - 1).clamp(-big, big)
        per_item = max(1, min(_CELLS_PER_ITEM,
                              _MOST_CELLS // len(items.scores)))
        cells = (per_item * items.counts).clamp(max=_MOST_CELLS)
        finest = 8 * limits.eps * (
            torch.maximum(low.abs(), high.abs()) + (2 * lift + limits.tiny))
        self.scale = torch.minimum(
            cells / (high - low).abs(), (1 / finest).clamp(max=big))
        # 1.5 empty cells below the lowest item: what is lower has place 0
        self.low = low - 1.5 / self.scale
        self.top = (cells + 3).to(low.dtype)
        owned = cells + 4
        self.offset = (owned.cumsum(0) - owned).to(torch.int32)
        return per_item * len(items.scores) + 4 * len(cells) + 1

    def find(self, scores: Tensor, rows: slice, out: Tensor) -> Tensor:
        """Writes the places of scores, flat, to ``out``.

        Args:
            scores (Tensor): shape (rows, columns), not lifted.
            rows (slice): the lists of the rows.
            out (Tensor): int32, shape (rows * columns,).

        Returns:
            Tensor: flat positions of those for which it is ``~place``, and
            that place only the lowest possible one.
        """
        cells = _cells(scores, self.low[rows, None], self.scale[rows, None],
                       self.top[rows, None], self.offset[rows, None])
        torch.index_select(self.places, 0, cells.view(-1), out=out)
        return positions(out.signbit())


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
        shared = [items.relevant[:0]]
        for rows, columns, flat in _blocks(items):
            at = table.find(items.scores[rows, columns], rows,
                            self.places[flat])
            shared.append(at.add_(flat.start))
        at = torch.cat(shared)
        scores, lists = self._look_up(at)
        lowest = pick(self.places, at).bitwise_not_()
        self.places.scatter_(0, at, climb(
            sorted_items.next_below()[1:], scores, lowest, lists,
            sorted_items))

    def _look_up(self, at: Tensor) -> tuple[Tensor, Tensor]:
        """Lifted scores and lists of flat positions."""
        scores = pick(self.items.scores.view(-1), at) + self.items.lift
        num_lists, length = self.items.scores.shape
        if num_lists == 1:
            return scores, torch.zeros_like(at)
        return scores, torch.div(at, max(1, length), rounding_mode='floor')

    def histogram(self) -> Tensor:
        """Irrelevant items per place, int64, shape (P + S,)."""
        size = len(self.sorted.lists) + len(self.sorted.counts)
        everything = torch.bincount(self.places, minlength=size)
        return everything - torch.bincount(
            pick(self.places, self.items.relevant), minlength=size)

    def passed(self, moved: SortedItems, reach: Tensor
               ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Irrelevant items that movers have passed, and few others.

        Args:
            moved (SortedItems): the relevant items after the move.
            reach (Tensor): shape (P + S,), the highest score that an item
                from below a place has moved to.

        Returns:
            tuple: flat positions, lists, places before, and number of movers
            that passed; integers, equally long.
        """
        # place 0 is never passed: the relevant items drop out
        self.places.index_fill_(0, self.items.relevant, 0)
        # no x above it, lifted, is below the reach
        reach = reach - self.items.lift
        found = [self.items.relevant[:0]]
        for rows, columns, flat in _blocks(self.items):
            scores = self.items.scores[rows, columns].reshape(-1)
            at = positions(
                scores <= pick(reach, self.places[flat]))
            found.append(at.add_(flat.start))
        at = torch.cat(found)
        scores, lists = self._look_up(at)
        before = pick(self.places, at)
        now = sink(moved.next_below(), scores, before, lists, moved)
        return at, lists, before, before - now


def reach_of_movers(before: SortedItems, moved: SortedItems) -> Tensor:
    """Per place, the highest score a relevant item below it moved to."""
    place_in_moved = torch.empty_like(moved.order)
    place_in_moved.scatter_(0, moved.order, _numbers(moved.order))
    # positions grow from list to list, so one running maximum serves all
    highest = pick(place_in_moved, before.order).cummax(0).values
    reach = before.scores.new_full(
        (len(before.lists) + len(before.counts),), -float('inf'))
    return reach.scatter_(0, before.places + 1, pick(moved.scores, highest))
