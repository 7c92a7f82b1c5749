"""``python -m mmrank``: the commands of an installed package by name."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == '__main__':
    sys.exit(main())
