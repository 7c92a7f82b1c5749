"""``python -m mmrank``: the tools of an installed package by name."""

from __future__ import annotations

import sys

from .shipped import config_names, config_path

USAGE = """usage: python -m mmrank COMMAND ...

  train CONFIG [...]             trains; the flags of tools/train.py
  test CONFIG CHECKPOINT [...]   evaluates; the flags of tools/test.py
  embed CONFIG CHECKPOINT IMAGES... --out GALLERY
                                 embeds images into a searchable gallery
  search CONFIG CHECKPOINT GALLERY IMAGES...
                                 finds the most similar images
  detect CONFIG CHECKPOINT IMAGES...
                                 detects objects, by mmdet's inferencer
  check-data CONFIG              tables, faults and samples of its data
  configs                        lists the shipped configs
  config NAME                    prints the path of a shipped config
  check                          says what the environment lacks

CONFIG is a file, or the name of a shipped config."""


def main(argv: list[str] | None = None) -> int:
    """Runs the command that ``argv`` names; returns the exit status."""
    command, *rest = (sys.argv[1:] if argv is None else argv) or ['help']
    if command in ('help', '-h', '--help'):
        print(USAGE)
        return 0
    if command in ('train', 'test'):
        from .engine import launch
        getattr(launch, command)(rest)
        return 0
    if command in ('embed', 'search', 'detect'):
        from .apis import command_line
        return command_line.main([command, *rest])
    if command == 'check-data':
        from .engine.check_data_command import main as check_data
        return check_data(rest)
    if command == 'check':
        from .check import main as check
        return check()
    if command == 'configs' and not rest:
        print('\n'.join(config_names()))
        return 0
    if command == 'config' and len(rest) == 1:
        print(config_path(rest[0]))
        return 0
    if command in ('configs', 'config'):
        print(USAGE, file=sys.stderr)
    else:
        print(f'mmrank has no command {command!r}\n\n{USAGE}',
              file=sys.stderr)
    return 2


if __name__ == '__main__':
    sys.exit(main())
