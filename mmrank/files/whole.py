"""Files and folders that appear under their names only when whole."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def write_whole(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write to, renamed to ``path`` when the block ends.

    A failed block, a full disk or a killed process leaves the file that was
    there before. The part that was written is removed unless the process was
    killed; it is called ``.NAME.HOST.PROCESS.RANDOM.part`` and lies beside
    the target. The folder is made where it is missing, and the file has the
    rights that ``open`` would have given it.

    Args:
        path (path): where to.

    Yields:
        BinaryIO: open for writing.

    Raises:
        OSError: The folder cannot be made or written to.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     target = Path(folder, 'new', 'a.txt')
        ...     with write_whole(target) as file:
        ...         _ = file.write(b'whole')
        ...     target.read_bytes()
        b'whole'
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(
        prefix=f'.{target.name}.{socket.gethostname()}.{os.getpid()}.',
        suffix='.part', dir=target.parent)
    try:
        with os.fdopen(handle, 'wb') as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, target)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(path: str | os.PathLike[str], *,
                 replace: bool = False) -> Iterator[Path]:
    """A new folder that takes its name only when the block has ended well.

    Args:
        path (path): its name at the end.
        replace (bool): an existing folder of that name goes then; by default
            only an empty one does.

    Yields:
        Path: the folder to fill.

    Raises:
        OSError: Something is there already and is not to be replaced.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(
        prefix=f'.{target.name}-', dir=target.parent))
    try:
        yield work
        work.chmod(0o777 & ~_umask())
        if replace and target.exists():
            shutil.rmtree(target)
        os.replace(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _umask() -> int:
    # what temporary files are made with is for their owner alone
    mask = os.umask(0)
    os.umask(mask)
    return mask
