"""Checkpoints: loading without arbitrary code, and which one to resume."""

from __future__ import annotations

import logging
import os
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, print_log
from mmengine.utils import digit_version


def _buffer_method(owner: Any, name: str) -> Any:
    """What ``getattr`` may fetch: the statistics of a log buffer."""
    if owner is HistoryBuffer and name in ('min', 'max', 'mean', 'current'):
        return getattr(owner, name)
    raise UnpicklingError(f'GLOBAL {owner}.{name} is not allowed')


def _checkpoint_types() -> list[Any]:
    """What a runner's own checkpoint holds beside tensors and literals.

    The log buffers of its message hub: numpy arrays and scalars of the
    usual dtypes, and the buffer's own statistics. None of them runs code
    of the file's choice.
    """
    core = np._core if hasattr(np, '_core') else np.core
    dtypes = ('float64', 'float32', 'float16', 'int64', 'int32', 'uint32',
              'uint8', 'bool')
    return [HistoryBuffer, (_buffer_method, 'builtins.getattr'),
            np.ndarray, np.dtype, core.multiarray.scalar,
            core.multiarray._reconstruct,
            *{type(np.dtype(name)) for name in dtypes}]


@contextmanager
def loading_safely() -> Iterator[None]:
    """Every ``torch.load`` inside refuses to run code of the file's choice.

    PyTorch 2.6 made ``weights_only=True`` the default. MMEngine 0.10.7 then
    cannot read its own checkpoints, whose log buffers are no tensors, and
    the maintained fork reads what was refused once more without the
    protection. Here the types of those buffers are allowed, and nothing
    else; the protection stays on for every file, so a downloaded one runs
    no code. A file that one trusts needs PyTorch's own
    ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1``. Before PyTorch 2.6 its default
    is left alone.

    Raises:
        ValueError: A checkpoint was refused; says what it holds.
    """
    if digit_version(torch.__version__) < digit_version('2.6'):
        yield
        return
    force = 'TORCH_FORCE_WEIGHTS_ONLY_LOAD'
    before = os.environ.get(force)
    if 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD' not in os.environ:
        os.environ[force] = '1'
    try:
        with torch.serialization.safe_globals(_checkpoint_types()):
            yield
    except UnpicklingError as error:
        refused = re.search(r'GLOBAL (?:<class )?\'?([\w.]+)', str(error))
        what = refused.group(1) if refused else 'other objects'
        raise ValueError(
            f'a checkpoint holds {what} beside its weights, which could run '
            'code of its own while it is read (the log names the file). Ask '
            'its author for the weights alone (dict(state_dict=...)); if '
            'you trust the file, set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1.'
        ) from error
    finally:
        if before is None:
            os.environ.pop(force, None)
        else:
            os.environ[force] = before


def is_readable(path: str | os.PathLike[str]) -> bool:
    """Whether a checkpoint file is whole.

    ``torch.save`` writes a zip archive with a checksum for every record;
    all of them are compared, so a cut or damaged file shows.

    Example:
        >>> is_readable('no-such-file.pth')
        False
    """
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None and any(
                name.endswith('data.pkl') for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, EOFError, ValueError):
        return False


def find_last_readable(work_dir: str | os.PathLike[str]) -> str | None:
    """The newest whole checkpoint of a run, with a message for each other.

    Newest is by the epoch or iteration in the name, among what the run's
    checkpoint hook writes (``epoch_3.pth``, ``iter_500.pth``), then what
    the file ``last_checkpoint`` names when it lies elsewhere.

    Returns:
        Its path; None where there is none.
    """
    for path in _candidates(Path(work_dir)):
        if is_readable(path):
            return str(path)
        print_log(
            f'checkpoint {path} is truncated or damaged; it is left out and '
            'the one before is used. Delete it when it is not needed.',
            logger='current', level=logging.WARNING)
    return None


def _candidates(work_dir: Path) -> list[Path]:
    steps = [(int(found.group(1)), path)
             for path in work_dir.glob('*.pth')
             if (found := re.fullmatch(r'(?:epoch|iter)_(\d+)', path.stem))]
    paths = [path for _, path in sorted(steps, reverse=True)]
    note = work_dir / 'last_checkpoint'
    named = note.read_text().strip() if note.is_file() else ''
    if named and Path(named).resolve() not in [p.resolve() for p in paths]:
        # a hook with an out_dir or a file name of its own
        elsewhere = Path(named)
        paths = [elsewhere, *paths] if elsewhere.exists() else paths
    return paths


def refuse_unreadable(path: str) -> None:
    """Raises for a named local checkpoint that is missing or not whole.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is truncated or damaged; the message names the
            newest whole one beside it.
    """
    if '://' in path:
        return
    if not os.path.isfile(path):
        raise FileNotFoundError(f'checkpoint {path} does not exist')
    if is_readable(path) or _is_legacy(path):
        return
    other = find_last_readable(os.path.dirname(path) or '.')
    raise ValueError(
        f'checkpoint {path} is truncated or damaged ('
        f'{os.path.getsize(path)} bytes). '
        + (f'The newest whole one beside it is {other}.' if other
           else 'There is no whole one beside it.'))


def _is_legacy(path: str) -> bool:
    """A pickle of before PyTorch 1.6, or of another tool: torch decides."""
    with open(path, 'rb') as file:
        head = file.read(2)
    return head[:1] == b'\x80'
