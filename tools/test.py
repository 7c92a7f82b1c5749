"""Evaluates a checkpoint: mmrank.cli holds the command."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mmrank.cli import main

if __name__ == '__main__':
    sys.exit(main(['test', *sys.argv[1:]]))
