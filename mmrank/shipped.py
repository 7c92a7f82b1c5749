"""Where the shipped configs and tools lie: in a checkout or an install."""

from __future__ import annotations

import difflib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def shipped_folder(name: str) -> Path:
    """The folder ``configs`` or ``tools`` of this package.

    An installed wheel carries both in ``mmrank/.mim``, as mmdet does; a
    checkout, and an editable install of it, has them beside the package.

    Args:
        name: ``'configs'`` or ``'tools'``.

    Raises:
        FileNotFoundError: Neither place has the folder.
    """
    places = [PACKAGE.parent / name, PACKAGE / '.mim' / name]
    if not (PACKAGE.parent / 'setup.py').is_file():
        places.reverse()  # beside site-packages/mmrank lie strangers
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f'mmrank at {PACKAGE} came without its {name}; looked at '
        f'{places[0]} and {places[1]}. Install it anew from a wheel or a '
        'checkout.')


def config_path(name: str) -> str:
    """The absolute path of a shipped config, to be inherited or loaded.

    MMEngine resolves ``_base_ = 'package::...'`` for a fixed list of
    packages. ``_base_`` may be an expression, so a config anywhere can say

    .. code-block:: python

        _base_ = __import__('mmrank').config_path('rambo/....py')

    Args:
        name: The path below ``configs``, with ``/`` between folders.

    Raises:
        FileNotFoundError: No such config; the message lists near names.

    Example:
        >>> from mmrank import config_path
        >>> config_path('rambo/no-such-config.py')
        Traceback (most recent call last):
        ...
        FileNotFoundError: mmrank ships no config 'rambo/no-such-config.py'...
    """
    root = shipped_folder('configs')
    path = root / name
    if path.is_file():
        return str(path)
    if Path(name).is_absolute():
        raise FileNotFoundError(f'there is no config file {name!r}')
    raise FileNotFoundError(
        f'mmrank ships no config {name!r}, and no file has this path'
        f'{_nearest(name) or "."} List all: python -m mmrank configs')


def config_names() -> list[str]:
    """All shipped configs, less the ``_base_`` parts, as config_path takes."""
    root = shipped_folder('configs')
    names = (path.relative_to(root) for path in root.rglob('*.py'))
    return sorted(
        name.as_posix() for name in names if name.parts[0] != '_base_')


def _nearest(name: str) -> str:
    names = config_names()
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3)
    stem = Path(name).name
    near = [other for other in names if Path(other).name == stem] or near
    return f'; did you mean {", ".join(near)}?' if near else ''
