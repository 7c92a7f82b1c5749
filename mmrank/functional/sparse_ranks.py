"""A rule's value and blackbox gradient, of the relevant items alone.

Sizes follow from the data: memory and time grow with the items and the
relevant ones among them, and no list is sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from .rank_counts import (
    Items,
    Places,
    PlaceTable,
    SortedItems,
    pick,
    positions,
    reach_of_movers,
)
from .ranks import Communicator, Ranks, Rule

_Function = TypeVar('_Function', bound=Callable[..., Any])


@dataclass
class Lists:
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
        num_lists, num_pairs (int): lists and relevant items over all
            processes.
        num_irrelevant (Tensor, optional): int64, shape (S,), where lists hold
            items that are not valid: how many irrelevant ones are.
    """
    own: Items
    to_scores: Callable[[Tensor, Tensor], Tensor]
    memory: Items | None
    positives: Tensor
    lists: Tensor
    own_start: int
    lengths: Tensor
    num_lists: int
    num_pairs: int
    num_irrelevant: Tensor | None = None


def rank_lists(lists: Lists, rule: Rule, lambda_val: float,
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
    if lists.num_irrelevant is not None:
        # what is not valid ties with an item at minus infinity
        irrelevant = torch.minimum(
            irrelevant, pick(lists.num_irrelevant, before.lists))
    rank_plus = 1 + before.num_above()
    value, slope = rule(Ranks(
        rank_plus, irrelevant, pick(counts.double(), before.lists),
        lists.num_lists, lists.num_pairs))

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
    if lists.num_irrelevant is not None:
        irrelevant_then = torch.minimum(
            irrelevant_then, pick(lists.num_irrelevant, moved.lists))

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


def find_positives(scores: Tensor,
                   relevance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Flat positions, columns and scores of the relevant items."""
    at = positions(relevance.reshape(-1))
    return (at, at % max(1, scores.shape[1]),
            pick(scores.reshape(-1), at))


def has_nan(scores: Tensor) -> Tensor:
    """Whether one is NaN, a scalar on the device."""
    if scores.numel() == 0:
        return scores.new_zeros((), dtype=torch.bool)
    return scores.amax().isnan()


def outside_graphs(function: _Function) -> _Function:
    """Sizes follow from the data: a compiled model breaks its graph here."""
    return torch.compiler.disable(function)  # type: ignore[no-any-return]


def agreed(is_nan: Tensor, numbers: list[int],
           comm: Communicator | None) -> tuple[bool, list[int]]:
    """Whether any process has NaN, and the sums of numbers over all."""
    if comm is None:
        return bool(is_nan), numbers
    facts = comm.sum(torch.cat(
        [is_nan.long().view(1), is_nan.new_tensor(numbers, dtype=torch.long)]))
    any_nan, *totals = facts.tolist()
    return bool(any_nan), totals


def float64(like: Tensor, value: float | list[int]) -> Tensor:
    """A float64 constant on the device of another tensor."""
    return torch.tensor(value, dtype=torch.float64, device=like.device)
