"""Every tool runs in a checkout of a package that is not installed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sorted(path for path in (ROOT / 'tools').rglob('*.py')
               if re.search(r'^(from|import) mmrank', path.read_text(), re.M))


@pytest.mark.parametrize('tool', TOOLS, ids=lambda path: path.stem)
def test_puts_the_checkout_on_the_path_before_it_imports_the_package(tool):
    before = re.split(r'^(?:from|import) mmrank', tool.read_text(),
                      maxsplit=1, flags=re.M)[0]
    depth = len(tool.relative_to(ROOT).parts) - 1
    folder = re.escape(f'Path(__file__).resolve().parents[{depth}]')
    # train.py and test.py say .parent.parent, some name it ROOT
    folder = rf'{folder}|str\(ROOT\)|parent\.parent\)'
    assert re.search(rf'sys\.path\.insert\(0, .*({folder})', before)


def test_runs_outside_without_an_install(tmp_path):
    variables = {name: value for name, value in os.environ.items()
                 if name != 'PYTHONPATH'}
    done = subprocess.run(
        [sys.executable, str(ROOT / 'tools/print_config.py'),
         'proxy_anchor/proxy-anchor_small_glyphs.py'],
        cwd=tmp_path, env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'mmrank.ProxyAnchorLoss' in done.stdout
