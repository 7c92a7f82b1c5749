"""Checkpoints and results, loaded without arbitrary code; which to resume."""

from __future__ import annotations

import codecs
import io
import logging
import os
import pickle
import re
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from mmengine.logging import HistoryBuffer, print_log
from mmengine.runner import load_checkpoint
from torch import nn


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
    dtypes = ('float64', 'float32', 'float16', 'int64', 'int32', 'uint32',
              'uint8', 'bool')
    # what builds numpy's scalars and arrays, under its name before numpy 2
    # and since: a checkpoint may come from either
    makers = {'scalar': np.float64(0).__reduce__()[0],
              '_reconstruct': np.zeros(1).__reduce__()[0]}
    return [HistoryBuffer, (_buffer_method, 'builtins.getattr'),
            np.ndarray, np.dtype,
            *{type(np.dtype(name)) for name in dtypes},
            *((maker, f'numpy.{core}.multiarray.{name}')
              for name, maker in makers.items()
              for core in ('core', '_core'))]


class _Pickle:
    """A pickle module for releases of torch whose own allows no more types.

    ``torch.load`` takes it as ``pickle_module``.
    """

    class Unpickler(pickle.Unpickler):
        """Finds what a checkpoint holds and nothing else."""

        def find_class(self, module: str, name: str) -> Any:
            """What a checkpoint may name."""
            # torch.save writes a protocol that Python 2 could read
            key = f'{module.replace("__builtin__", "builtins")}.{name}'
            allowed = _named_types()
            if key not in allowed:
                raise UnpicklingError(f'GLOBAL {key} is not allowed')
            return allowed[key]

    @classmethod
    def load(cls, file: Any, **kwargs: Any) -> Any:
        """As ``pickle.load``."""
        return cls.Unpickler(file, **kwargs).load()


class _ResultsUnpickler(_Pickle.Unpickler):
    """Tensors too, whose own way of reading a storage would run its code."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ('torch.storage', '_load_from_bytes'):
            return _storage
        return super().find_class(module, name)


def _storage(content: bytes) -> Any:
    return torch.load(io.BytesIO(content), weights_only=True)


@cache
def _named_types() -> dict[str, Any]:
    """Those of torch's own weights, ours, and plain containers."""
    from torch._weights_only_unpickler import _get_allowed_globals
    ours = {}
    for one in _checkpoint_types():
        kind, name = one if isinstance(one, tuple) else (
            one, f'{one.__module__}.{one.__qualname__}')
        ours[name] = kind
    # what numpy's pickles and ours name beside
    plain = {'_codecs.encode': codecs.encode, 'builtins.set': set,
             'builtins.bytearray': bytearray, 'builtins.complex': complex,
             'collections.Counter': Counter, 'torch.device': torch.device}
    return {**_get_allowed_globals(), **plain, **ours}


@contextmanager
def _reading_weights_only() -> Iterator[None]:
    """The protection of torch, or our own where torch's takes no types."""
    if hasattr(torch.serialization, 'safe_globals'):
        with _environment('TORCH_FORCE_WEIGHTS_ONLY_LOAD', '1'), \
                torch.serialization.safe_globals(_checkpoint_types()):
            yield
        return
    load = torch.load

    def restricted(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop('weights_only', None)
        return load(*args, **{**kwargs, 'pickle_module': _Pickle})

    torch.load = restricted
    try:
        yield
    finally:
        torch.load = load


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def loading_safely() -> Iterator[None]:
    """Every ``torch.load`` inside refuses to run code of the file's choice.

    PyTorch 2.6 made ``weights_only=True`` the default. MMEngine 0.10.7 then
    cannot read its own checkpoints, whose log buffers are no tensors, and
    the maintained fork reads what was refused once more without the
    protection. Here the types of those buffers are allowed, and nothing
    else; the protection stays on for every file, so a downloaded one runs
    no code. It is the same with an older PyTorch, whose default runs code.
    A file that one trusts needs PyTorch's own
    ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1``.

    Raises:
        ValueError: A checkpoint was refused; says what it holds.
    """
    if 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD' in os.environ:
        yield
        return
    try:
        with _reading_weights_only():
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


def load_weights(model: nn.Module, path: str | os.PathLike[str],
                 logger: Any = None) -> dict[str, Any]:
    """Fills a model from a checkpoint file, which runs no code.

    Args:
        model (nn.Module): takes what fits.
        path (path): of the checkpoint.
        logger (str, optional): 'silent' says nothing of what does not fit.

    Returns:
        dict: the checkpoint.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is truncated or damaged, or holds more than weights.
    """
    name = os.fspath(path)
    refuse_unreadable(name)
    with loading_safely():
        try:
            found: dict[str, Any] = load_checkpoint(
                model, name, map_location='cpu', logger=logger)
        except UnpicklingError:
            raise
        except (EOFError, RuntimeError, KeyError, AttributeError,
                TypeError) as error:
            raise ValueError(
                f'{name} is no checkpoint: {error}') from error
    return found


def load_results(path: str | os.PathLike[str]) -> list[Any]:
    """What ``tools/test.py --out`` has pickled.

    Args:
        path (path): of the file.

    Returns:
        list: a dict of arrays and tensors for each image.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, no pickle of a list, or holds more, which
            could run code of its own.
    """
    try:
        with open(path, 'rb') as file:
            found = _ResultsUnpickler(file).load()
        if not isinstance(found, list):
            raise ValueError(f'it is of type {type(found).__name__}')
    except (UnpicklingError, EOFError, RuntimeError, ValueError, LookupError,
            AttributeError, TypeError) as error:
        raise ValueError(
            f'{path} holds no results: {error}. `tools/test.py CONFIG '
            f'CHECKPOINT --out {path}` writes them anew') from error
    return found


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
