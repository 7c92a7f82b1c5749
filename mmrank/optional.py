"""Libraries that only some parts need: imported late, missed in one way."""

from __future__ import annotations

import importlib
from typing import Any


def need(module: str, user: str, install: str, *, instead: str = '') -> Any:
    """Imports a module of an optional library.

    Args:
        module: Its name, such as ``'faiss'``.
        user: What needs it, as the message shall name it.
        install: The distribution that pip installs.
        instead: What to do without it, such as ``"use backend='torch'"``.

    Returns:
        The module.

    Raises:
        ImportError: It is not installed, or does not import; names the
            remedy.

    Example:
        >>> need('no_such_module', 'X', 'no-such')
        Traceback (most recent call last):
        ...
        ImportError: X needs no_such_module: run `pip install no-such`
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        top = module.partition('.')[0]
        missing = isinstance(error, ModuleNotFoundError) \
            and error.name in (None, top, module)
        why = '' if missing else f', which does not import ({error})'
        raise ImportError(
            f'{user} needs {top}{why}: run `pip install {install}`'
            + (f', or {instead}' if instead else '')) from error
