"""Files: written whole or not at all, read without running their code.

:mod:`mmrank.files.images` says what is an image, and reads it.
"""

from .archives import read_archive, write_archive
from .checkpoints import (
    find_last_readable,
    is_readable,
    load_results,
    load_weights,
    loading_safely,
    refuse_unreadable,
)
from .whole import whole_folder, write_whole

__all__ = [
    'find_last_readable',
    'is_readable',
    'load_results',
    'load_weights',
    'loading_safely',
    'read_archive',
    'refuse_unreadable',
    'whole_folder',
    'write_archive',
    'write_whole',
]
