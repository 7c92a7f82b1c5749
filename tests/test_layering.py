"""Floors and rooms: which part of the package may import which.

A floor imports only from the floors below it. Within ``models`` a room
imports only from the rooms below it, so no loss knows a head; within
``functional`` a file imports only from the machine, so no metric or loss
leans on another.
"""

import ast
import re
import sys
from pathlib import Path

import pytest

from .test_functional.test_rooms import MACHINE

PACKAGE = Path(__file__).resolve().parents[1] / 'mmrank'
FLOORS = [
    {'version', 'shipped', 'environment', 'optional'},  # standard library
    {'functional'},
    {'state', 'files'},
    {'registry', 'structures'},
    {'models', 'datasets', 'evaluation'},
    {'visualization'},
    {'engine', 'apis'},
    {'cli', 'check'},
    {'__init__', '__main__'},
]
# of ``models``, from below
ROOMS = [{'losses', 'backbones'}, {'heads'}, {'learners'}, {'__init__'}]
ROOM = {name: floor for floor, names in enumerate(ROOMS) for name in names}
FLOOR = {name: floor for floor, names in enumerate(FLOORS) for name in names}
# what each of the lowest may import from outside
OUTSIDE = {'functional': {'torch'}, 'version': set(), 'shipped': set(),
           'environment': set(), 'optional': set()}
FILES = sorted(PACKAGE.rglob('*.py'))


def room(path: Path) -> str:
    """The first name below the package: a folder or a module."""
    return path.relative_to(PACKAGE).with_suffix('').parts[0]


def imports(path: Path, source: str | None = None) -> set[str]:
    """Absolute names of all modules that a file imports, anywhere in it."""
    package = ('mmrank', *path.relative_to(PACKAGE).parts[:-1])
    found = set()
    for node in ast.walk(ast.parse(source or path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] \
                if node.level else ()
            module = '.'.join([*base, *filter(None, [node.module])])
            found |= {f'{module}.{alias.name}' for alias in node.names}
    return found


def violations(path: Path, source: str | None = None) -> list[str]:
    own = room(path)
    wrong = []
    for name in sorted(imports(path, source)):
        first, *rest = name.split('.')
        if first == 'mmrank':
            other = rest[0] if rest and rest[0] in FLOOR else '__init__'
            fine = other != '__init__' and (
                _same_room_or_below(path, rest) if other == own
                else FLOOR[other] < FLOOR[own])
            if not fine:
                wrong.append(name)
        elif own in OUTSIDE and first not in OUTSIDE[own] \
                and first not in sys.stdlib_module_names:
            wrong.append(name)
    return wrong


def _same_room_or_below(path: Path, rest: list[str]) -> bool:
    """Whether a file may import ``mmrank.<rest>`` of its own floor."""
    floor, *own = path.relative_to(PACKAGE).with_suffix('').parts
    inner = rest[1] if len(rest) > 1 else '__init__'
    if floor == 'models':
        return inner == own[0] or ROOM.get(
            inner, len(ROOMS)) < ROOM[own[0]]
    if floor == 'functional' and own != ['__init__']:
        return inner in MACHINE
    return True


@pytest.mark.parametrize(
    'path', FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_file_imports_only_from_floors_below(path):
    assert room(path) in FLOOR, 'a new room needs its floor in this test'
    if path != PACKAGE / '__init__.py':
        assert violations(path) == []


@pytest.mark.parametrize('file, source', [
    ('functional/blackbox.py', 'import numpy'),
    ('functional/blackbox.py', 'from ..state import Collectives'),
    ('state/memory.py', 'def f():\n    from ..models.losses import X'),
    ('models/losses/rambo_loss.py', 'from mmrank.engine import launch'),
    ('datasets/cub.py', 'from ..models import X'),
    ('evaluation/metrics/retrieval.py', 'import mmrank.apis.search'),
    ('models/losses/rambo_loss.py', 'from ..heads.detection import rules'),
    ('models/heads/head.py', 'from mmrank.models.learners import X'),
    ('models/losses/x.py', 'from mmrank.models import MetricLearningHead'),
    ('functional/recall_loss.py', 'from .average_precision_loss import x'),
    ('functional/recall_loss.py', 'import mmrank.functional.retrieval'),
    ('models/heads/head.py', 'from mmrank import functional, apis')])
def test_an_import_from_the_same_or_a_higher_floor_is_found(file, source):
    assert violations(PACKAGE / file, source)


@pytest.mark.parametrize('file, source', [
    ('functional/blackbox.py', 'import torch.nn.functional\nimport math'),
    ('state/memory.py', 'from .collectives import Collectives'),
    ('models/losses/rambo_loss.py', 'from ...functional import blackbox'),
    ('models/losses/rambo_loss.py', 'from mmrank import functional as F'),
    ('models/heads/detection/rules.py', 'from ...losses import RankingLoss'),
    ('models/losses/rambo_loss.py', 'from .ranking_loss import RankingLoss'),
    ('functional/recall_loss.py', 'from .blackbox import blackbox_loss'),
    ('engine/launch.py', 'from ..models import heads')])
def test_an_import_from_below_is_fine(file, source):
    assert violations(PACKAGE / file, source) == []


def test_no_api_imports_a_generator_of_data():
    """What describes a user's photographs does not make up data sets."""
    guilty = [path for path in (PACKAGE / 'apis').rglob('*.py')
              if any('generators' in name for name in imports(path))]
    assert guilty == []


@pytest.mark.parametrize('name', [
    r'\.cuda\(', r"'cuda:", 'device_count', r'nn\.DataParallel',
    'index_cpu_to_all_gpus', 'index_cpu_to_gpus'])
def test_no_file_chooses_devices_for_its_process(name):
    """A neighbour search, say, must not take the other processes' GPUs."""
    guilty = [path for path in PACKAGE.rglob('*.py')
              if re.search(name, path.read_text())]
    assert guilty == []
