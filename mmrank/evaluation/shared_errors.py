"""Errors of the main process, raised by all."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mmengine.dist import broadcast_object_list, is_main_process

# what the other processes may raise as well; anything else is a RuntimeError
_KINDS = (ValueError, FileNotFoundError, OSError)


class _Failure:
    """Sent in the place of the figures; pickles whatever the error holds."""

    def __init__(self, error: Exception) -> None:
        self.kind: type[Exception] = next(
            (kind for kind in _KINDS if isinstance(error, kind)),
            RuntimeError)
        self.message = str(error) if isinstance(
            error, (*_KINDS, RuntimeError)) else (
                f'{type(error).__name__}: {error}')


def share_errors(evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """A metric's ``evaluate`` whose errors reach every process.

    MMEngine's ``BaseMetric.evaluate`` collects, computes on the main process
    alone and broadcasts the figures, for which the others wait. If computing
    fails there, they wait until the launcher ends them. Here they receive
    the error instead.

    Args:
        evaluate (Callable): a method whose last message between processes is
            one ``broadcast_object_list`` of the figures, in a list of one.

    Returns:
        Callable: the same method. The main process raises its own error, the
        others one of the same message: a ``ValueError``,
        ``FileNotFoundError`` or ``OSError`` if it is one, otherwise a
        ``RuntimeError``.
    """

    @functools.wraps(evaluate)
    def shared(self: Any, size: int) -> Any:
        try:
            outcome = evaluate(self, size)
        except Exception as error:
            if is_main_process():
                broadcast_object_list([_Failure(error)])
            raise
        finally:
            # also after an error: nothing of it counts the next time
            self.results.clear()
        if isinstance(outcome, _Failure):
            raise outcome.kind(outcome.message)
        return outcome

    return shared
