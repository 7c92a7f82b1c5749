"""Which commands there are, and the one place where an error is a line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pickle import UnpicklingError

# name -> what its file of the same name does; imported when asked for
COMMANDS = {
    'train': 'trains by a config',
    'test': 'evaluates a checkpoint',
    'embed': 'embeds images into a searchable gallery',
    'search': 'finds the most similar images of a gallery',
    'detect': "detects objects, by mmdet's inferencer",
    'check-data': 'tables, faults and samples of the data of a config',
    'configs': 'lists the shipped configs',
    'config': 'prints the path of a shipped config',
    'check': 'says what the environment lacks',
}
# what configs, files and flags bring about; anything else is our own fault
# and shows its traceback
USER_ERRORS = (OSError, ValueError, TypeError, LookupError, ImportError,
               AttributeError, NameError, SyntaxError, UnpicklingError)


def usage() -> str:
    """The commands, a line each."""
    lines = [f'  {name:12}{what}' for name, what in COMMANDS.items()]
    return '\n'.join([
        'usage: python -m mmrank COMMAND ...', '', *lines, '',
        'COMMAND --help names its arguments; --debug shows the traceback of '
        'an error.', 'CONFIG is a file, or the name of a shipped config.'])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command that ``argv`` names.

    Returns:
        The exit status: 0, or 1 for an error, which is one line on the
        standard error stream. Wrong usage is 2.
    """
    name, *rest = (sys.argv[1:] if argv is None else argv) or ['help']
    if name in ('help', '-h', '--help'):
        print(usage())
        return 0
    if name not in COMMANDS:
        print(f'mmrank has no command {name!r}\n\n{usage()}',
              file=sys.stderr)
        return 2
    module = name.replace('-', '_')
    command = importlib.import_module(f'{__package__}.{module}')
    parser = argparse.ArgumentParser(
        prog=f'mmrank {name}', description=command.__doc__)
    parser.add_argument('--debug', action='store_true',
                        help='show the traceback of an error')
    try:
        command.add_arguments(parser)
        args = parser.parse_args(rest)
    except SystemExit as stop:  # --help, or wrong usage, which it has said
        return int(stop.code or 0)
    try:
        status: int = command.run(args)
        return status
    except USER_ERRORS as error:
        if args.debug:
            raise
        print(f'mmrank {name}: {in_one_line(error)}', file=sys.stderr)
        return 1


def in_one_line(error: BaseException) -> str:
    """What an error says, without the wrapping of MMEngine's registries.

    A registry says for every level "class `X` in module.py: ..."; the
    innermost one names the part and the key.

    Example:
        >>> in_one_line(ValueError('class `A` in a.py: class `B` in b.py: '
        ...                        'margin must be > 0,\\nbut is -1'))
        'B: margin must be > 0, but is -1'
        >>> in_one_line(FileNotFoundError(2, 'No such file', 'a.py'))
        'No such file: a.py'
    """
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror
        if error.filename is not None:
            words += f': {error.filename}'
    elif isinstance(error, KeyError) and error.args:
        words = str(error.args[0])
        if ' ' not in words:
            words = f'the key {words!r} is missing'
    else:
        words = str(error) or type(error).__name__
    words = ' '.join(words.split())
    parts = words.split('class `')
    if len(parts) > 1 and '.py: ' in parts[-1]:
        owner = parts[-1].partition('`')[0]
        said = parts[-1].partition('.py: ')[2].strip('\'"')
        words = said if said.startswith(owner) else f'{owner}: {said}'
    return words
