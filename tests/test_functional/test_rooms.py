"""In ``mmrank/functional`` leaves import the machine, never each other."""

import ast
from pathlib import Path

import pytest

import mmrank

ROOM = Path(mmrank.__file__).parent / 'functional'
# what leaves share, the lowest first: each imports only from those before it
MACHINE = ['ranks', 'differentiable', 'ranking_path', 'checks', 'neighbours',
           'proxies', 'rank_counts', 'sparse_ranks', 'score_pool',
           'dense_ranks', 'blackbox']
FILES = sorted(path.stem for path in ROOM.glob('*.py')
               if path.stem != '__init__')


@pytest.mark.parametrize('name', FILES)
def test_file_imports_only_from_the_machine_below_it(name):
    tree = ast.parse((ROOM / f'{name}.py').read_text())
    found = {name for node in ast.walk(tree)
             if isinstance(node, ast.ImportFrom) and node.level == 1
             for name in ([node.module] if node.module else
                          [alias.name for alias in node.names])}
    below = MACHINE[:MACHINE.index(name)] if name in MACHINE else MACHINE
    assert found <= set(below)


def test_the_machine_has_no_name_of_a_file_that_is_gone():
    assert set(MACHINE) <= set(FILES)
