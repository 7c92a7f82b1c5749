"""Evaluates a checkpoint: mmrank.engine.launch holds the tool."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec('mmrank') is None:  # a checkout, not installed
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from mmrank.engine.launch import test

if __name__ == '__main__':
    test()
