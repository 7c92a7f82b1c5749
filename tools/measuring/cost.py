"""Time and memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from pathlib import Path

import torch


def interleaved(jobs: dict[str, Callable[[], object]],
                repeats: int,
                rounds: int = 1,
                warmup: int = 1,
                device: str = 'cpu',
                clock: Callable[[], float] = time.perf_counter,
                prepare: Callable[[], object] | None = None
                ) -> dict[str, list[float]]:
    """Seconds of every run of every job, the jobs taking turns.

    A change of the machine's load then meets all of them, and a ratio of
    two is of one time.

    Args:
        jobs (dict): what is timed.
        repeats (int): runs of a job in its turn.
        rounds (int): how often all have their turn.
        warmup (int): runs at the start of every turn that do not count.
        device (str): waited for, before and after every run, unless a
            processor.
        clock (Callable): ``time.process_time`` leaves other processes out.
        prepare (Callable, optional): called before every run, untimed.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            for run in range(warmup + repeats):
                if prepare is not None:
                    prepare()
                _wait(device)
                start = clock()
                job()
                _wait(device)
                if run >= warmup:
                    times[name].append(clock() - start)
    return times


def resident(field: str = 'VmRSS') -> int:
    """Bytes of memory of this process; 'VmHWM' is the highest so far."""
    for line in Path('/proc/self/status').read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f'/proc/self/status has no {field}')


class Peak:
    """Bytes of memory at the highest point of a block, above those before.

    Example:
        >>> with Peak() as peak:
        ...     values = torch.ones(1_000_000)
        >>> peak.above > 0
        True
    """

    above = 0

    def __enter__(self) -> Peak:
        gc.collect()  # garbage freed within the block would hide its peak
        self.before = resident()
        # resets the highest so far
        Path('/proc/self/clear_refs').write_text('5')
        return self

    def __exit__(self, *_: object) -> None:
        self.above = resident('VmHWM') - self.before


def _wait(device: str) -> None:
    if torch.device(device).type == 'cuda':
        torch.cuda.synchronize()
