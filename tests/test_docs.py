"""Every block of code in README.md and docs/ is run, in the order shown.

A document has a folder of its own. In it

- a ``python`` block whose first line is the comment ``# name.py`` is
  written to that file;
- any other ``python`` block is executed; the blocks of a document share
  their names, as a reader who types them along would have them;
- a ``bash`` block is run line by line and must succeed. ``configs`` and
  ``tools`` lie in the folder as in a checkout;
- ``text``, ``json`` and ``diff`` blocks are shown only.

A comment right before a block changes how it is run:

- ``<!-- test: append ARGS -->`` adds arguments to its last command, to make
  a long job short;
- ``<!-- test: with NAME=VALUE -->`` sets an environment variable;
- ``<!-- test: fails -->``: the command is shown because it fails;
- ``<!-- test: not run: REASON -->``: it needs what a test has not. It is
  parsed, the files it names must exist, and it is counted as skipped.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.test_distributed.test_launchers import free_port

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [path for path in (ROOT / 'README.md',
                               *sorted((ROOT / 'docs').rglob('*.md')))
             if path.is_file()]
SHOWN = ('text', 'json', 'diff')
SHELLS = ('bash', 'shell')
BLOCK = re.compile(
    r'(?:^<!-- test: (?P<directive>[^\n]*?) -->\n)?'
    r'^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$', re.M | re.S)
FILE_NAME = re.compile(r'# ([\w./-]+\.py)\n')
SECONDS = 600


@dataclass
class Block:
    """A fenced block, the number of its first line, how to run it."""

    document: Path
    line: int
    language: str
    text: str
    directive: str

    @property
    def reason(self) -> str:
        """Why the block is not run; '' if it is."""
        found = re.match(r'not run: (.+)', self.directive)
        return found.group(1) if found else ''

    def __str__(self) -> str:
        return f'{self.document.relative_to(ROOT)}:{self.line}'


def _blocks(document: Path) -> list[Block]:
    content = document.read_text(encoding='utf-8')
    return [
        Block(document, content[:found.start('text')].count('\n') + 1,
              found['language'].strip(), found['text'],
              found['directive'] or '') for found in BLOCK.finditer(content)
    ]


ALL_BLOCKS = [block for path in DOCUMENTS for block in _blocks(path)]
NOT_RUN = [block for block in ALL_BLOCKS if block.reason]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working folder that looks like a checkout, with our `python`."""
    for name in ('configs', 'tools'):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / '.bin'
    programs.mkdir()
    for name in ('python', 'python3'):
        program = programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv('PATH', f'{programs}:{os.environ["PATH"]}')
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    monkeypatch.setenv('OMP_NUM_THREADS', '1')
    # another run of the tests may use the launchers' default port
    monkeypatch.setenv('PORT', free_port())
    monkeypatch.setenv('MPLBACKEND', 'Agg')
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.mark.parametrize(
    'document', DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_block_of_the_document_runs(document: Path,
                                          folder: Path) -> None:
    # a process of its own: what a document registers and imports ends there
    done = subprocess.run(
        [sys.executable, '-m', 'tests.test_docs', str(document)],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-6000:]


def _run(document: Path) -> None:
    names = {'__name__': '__main__'}
    for block in _blocks(document):
        named = FILE_NAME.match(block.text)
        if named and block.language == 'python':
            file = Path(named.group(1))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(block.text)
        elif block.reason or block.language in SHOWN:
            continue
        elif block.language == 'python':
            # as many empty lines in front as the document has: a traceback
            # then shows the document's line
            source = '\n' * (block.line - 1) + block.text
            exec(compile(source, str(document), 'exec'), names)
        else:
            _run_shell(block)


def _run_shell(block: Block) -> None:
    kind, _, argument = block.directive.partition(' ')
    text, environment = block.text, dict(os.environ)
    if kind == 'append':
        text = f'{text.rstrip()} {argument}\n'
    elif kind == 'with':
        environment |= dict(
            word.split('=', 1) for word in shlex.split(argument))
    done = subprocess.run(
        ['bash', '-euo', 'pipefail', '-c', text], env=environment,
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        timeout=SECONDS)
    assert (done.returncode != 0) == (kind == 'fails'), (
        f'{block} ended with {done.returncode}:\n{text}\n'
        f'{done.stdout[-4000:]}')


def test_every_block_says_its_language_and_a_known_directive() -> None:
    for block in ALL_BLOCKS:
        assert block.language in (*SHOWN, *SHELLS, 'python'), block
        assert re.match(
            r'$|append .|with \w+=|fails$|not run: .', block.directive), block


def test_no_directive_stands_apart_from_its_block() -> None:
    for document in DOCUMENTS:
        written = document.read_text(encoding='utf-8').count('<!-- test:')
        used = sum(bool(block.directive) for block in _blocks(document))
        assert written == used, document


@pytest.mark.parametrize('block', NOT_RUN, ids=str)
def test_block_that_is_only_parsed(block: Block) -> None:
    if block.language == 'python':
        compile(block.text, str(block), 'exec')
    else:
        subprocess.run(['bash', '-n', '-c', block.text], check=True)
        for name in re.findall(r'(?:^|[\s=])((?:configs|tools)/[\w./-]+)',
                               block.text):
            assert (ROOT / name).exists(), f'{block} names {name}'
    pytest.skip(f'{block}: parsed only, {block.reason}')


def test_links_between_documents_lead_somewhere() -> None:
    for document in DOCUMENTS:
        content = re.sub(BLOCK, '', document.read_text(encoding='utf-8'))
        for target in re.findall(r'\]\(([^)#\s]+)(?:#[^)]*)?\)', content):
            if not re.match(r'\w+:', target):
                path = document.parent / target
                assert path.exists(), f'{document.name} links to {target}'


if __name__ == '__main__':
    _run(Path(sys.argv[1]))
