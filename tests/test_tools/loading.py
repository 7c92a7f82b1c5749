"""A script under tools/ as a module."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

TOOLS = Path(__file__).resolve().parents[2] / 'tools'
# the scripts do the same, to find ``measuring``
sys.path.append(str(TOOLS))


def load_tool(name: str) -> ModuleType:
    """The module of ``tools/{name}``, executed anew."""
    path = TOOLS / name
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
