"""Where a figure comes from."""

from __future__ import annotations

import contextlib
import platform
import subprocess
import sys
import time
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
#: The columns of a record, in the order in which files have them.
RECORD = ('commit', 'hardware', 'torch', 'date', 'command')


def commit() -> str:
    """The commit that is checked out, 'unknown' in an installed package."""
    return subprocess.run(
        ['git', 'rev-parse', '--short', 'HEAD'], cwd=ROOT, text=True,
        capture_output=True).stdout.strip() or 'unknown'


def processor() -> str:
    """The name of the processor."""
    with contextlib.suppress(OSError, StopIteration):
        lines = Path('/proc/cpuinfo').read_text().splitlines()
        return next(line.split(':')[1].strip() for line in lines
                    if line.startswith('model name'))
    return platform.processor() or platform.machine()


def hardware(device: str = 'cpu') -> str:
    """The device, and of a processor the number of threads used."""
    if torch.device(device).type == 'cuda':
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f'{processor()}, {threads} thread{"s" * (threads > 1)}'


def command(script: str) -> str:
    """How the script was called, from the root of the checkout."""
    path = Path(script).resolve().relative_to(ROOT)
    return ' '.join([f'python {path.as_posix()}', *sys.argv[1:]])


def record(called: str, device: str = 'cpu') -> dict[str, str]:
    """The circumstances of a figure; ``called`` is the command."""
    return dict(
        commit=commit(),
        hardware=hardware(device),
        torch=torch.__version__,
        date=time.strftime('%Y-%m-%d'),
        command=called)


def made_by(row: dict) -> str:
    """The record as a sentence under a table."""
    return (f'Made by `{row["command"]}`, commit {row["commit"]}, '
            f'{row["date"]}, {row["hardware"]}, torch {row["torch"]}.')
