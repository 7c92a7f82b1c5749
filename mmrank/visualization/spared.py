"""Errors of drawing: they cost a picture, not the run it shows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from mmengine.dist import master_only
from mmengine.runner import Runner

Draw = Callable[..., None]


def spared(draw: Draw) -> Draw:
    """A hook's method that draws, on the main process, and never raises.

    A full disk or a test set too small to plot would otherwise end hours of
    training, and with several processes leave the others waiting for the
    main one.

    Args:
        draw (Callable): a method whose first argument is the runner.

    Returns:
        Callable: the same method. An error goes to the runner's log, in one
        line with the name of the hook, and its traceback to the debug level.
    """

    @master_only
    @functools.wraps(draw)
    def drawn(self: Any, runner: Runner, *args: Any, **kwargs: Any) -> None:
        try:
            draw(self, runner, *args, **kwargs)
        except Exception as error:
            runner.logger.error(
                f'{type(self).__name__} could not draw and goes on without '
                f'the picture: {type(error).__name__}: {error}')
            runner.logger.debug('the error of drawing', exc_info=True)

    return drawn
