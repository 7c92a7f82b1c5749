"""The ranks that a rule reads, and the processes they are counted over."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from torch import Tensor


class Ranks(NamedTuple):
    """The ranks of relevant items, as a rule reads them.

    All fields broadcast against the first one, whose shape is open: a rule
    computes elementwise. Entries that belong to no relevant item may occur;
    they hold 1 relevant item and are left out of value and gradient.

    Attributes:
        among_relevant (Tensor): int64, ``rank+``: 1 + relevant items of the
            same list strictly above.
        irrelevant_above (Tensor): int64, irrelevant items above or tied.
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
