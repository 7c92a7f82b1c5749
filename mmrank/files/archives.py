"""Plain arrays in one ``.npz`` file, without pickle."""

from __future__ import annotations

import os
import zipfile

import numpy as np

from .whole import write_whole


def write_archive(file: str | os.PathLike,
                  arrays: dict[str, np.ndarray]) -> None:
    """Write plain arrays to one ``.npz`` file, whole or not at all."""
    with write_whole(file) as stream:
        np.savez(stream, **arrays)  # type: ignore[arg-type]


def read_archive(file: str | os.PathLike,
                 what: str) -> dict[str, np.ndarray]:
    """The plain arrays of an ``.npz`` file; pickled objects are refused.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, or no such archive.
    """
    file = os.fspath(file)
    if not os.path.isfile(file):
        raise FileNotFoundError(f'there is no {what} file {file!r}')
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    # numpy raises many kinds for bytes that are not what they should be
    except (ValueError, OSError, EOFError, KeyError, AttributeError,
            TypeError, zipfile.BadZipFile) as error:
        raise ValueError(
            f'{file!r} is damaged or no {what} ({error}): make it '
            'again') from error
