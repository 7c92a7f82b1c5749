"""Pools of gloo workers that live for a whole test session."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_scope() -> Iterator[None]:
    """A runner built within lends nobody its default scope or its epoch."""
    from mmengine.logging import MessageHub
    from mmengine.registry import DefaultScope
    kinds = (DefaultScope, MessageHub)
    before = [dict(kind._instance_dict) for kind in kinds]
    try:
        yield
    finally:
        for kind, kept in zip(kinds, before):
            # asked for anew: overwrite_default_scope puts another in its place
            kind._instance_dict.clear()
            kind._instance_dict.update(kept)


def clean_context() -> Any:
    """Starts processes from a server that has imported, and run, nothing else.

    A fork of the tests' own process can hang: threads of a convolution that
    ran there are lost. A spawned one imports everything anew.
    """
    context = multiprocessing.get_context('forkserver')
    context.set_forkserver_preload(
        ['torch', 'mmrank.engine', 'mmrank.models', 'mmrank.datasets',
         'mmrank.evaluation'])
    return context


def _work(index: int, size: int, store: str, pipe: Any) -> None:
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group(
        'gloo', init_method=f'file://{store}', rank=index, world_size=size)
    while (task := pipe.recv()) is not None:
        function, args = task
        try:
            with own_scope():
                result = function(*args)
            pipe.send((True, result))
        except BaseException:
            pipe.send((False, traceback.format_exc()))
    # leaving the group waits for the others, whom nothing keeps here
    os._exit(0)


class Pool:
    """``size`` processes that share one default gloo group."""

    timeout_seconds = 120

    def __init__(self, size: int) -> None:
        self.size = size
        self.broken = False
        context = clean_context()
        self._folder = tempfile.TemporaryDirectory()
        store = os.path.join(self._folder.name, 'store')
        self._pipes, self._workers = [], []
        for index in range(size):
            mine, theirs = context.Pipe()
            worker = context.Process(
                target=_work, args=(index, size, store, theirs), daemon=True)
            worker.start()
            self._pipes.append(mine)
            self._workers.append(worker)

    def run(self, function: Callable, *args: Any) -> list[Any]:
        """``function(*args)`` on every process; the results in order.

        ``function`` is a top-level function of a test module. It learns its
        index from ``torch.distributed``.
        """
        for pipe in self._pipes:
            pipe.send((function, args))
        results, errors = [], []
        for index, pipe in enumerate(self._pipes):
            if not pipe.poll(self.timeout_seconds):
                self.broken = True
                for worker in self._workers:
                    worker.kill()
                raise TimeoutError(f'process {index} does not answer; '
                                   f'others said: {errors}')
            fine, result = pipe.recv()
            (results if fine else errors).append(result)
        assert not errors, '\n'.join(errors)
        return results

    def close(self) -> None:
        for pipe in self._pipes if not self.broken else ():
            pipe.send(None)
        for worker in self._workers:
            worker.join(10)
            worker.kill()
        self._folder.cleanup()
