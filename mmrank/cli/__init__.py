"""``python -m mmrank COMMAND``: a file a command, one reader of errors.

A new command is a file here with ``add_arguments(parser)`` and
``run(args) -> int``, the exit status, and a line in ``COMMANDS``.
"""

from .main import COMMANDS, main

__all__ = ['COMMANDS', 'main']
