"""The quick start's script: which steps it takes, and that it resumes.

The Python it is given only notes its arguments and leaves the files that a
step would; the steps themselves are tested where they live.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAKE = """#!/bin/bash
echo "$*" >> {log}
while [ $# -gt 0 ]; do
    [ "$1" = --work-dir ] && out="$2"
    shift
done
if [ -n "$out" ]; then
    mkdir -p "$out"
    echo "$out/epoch_1.pth" > "$out/last_checkpoint"
    touch "$out/neighbours_0.png" "$out/embedding_0.png"
fi
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / 'tools', tmp_path / 'tools')
    for name in ('configs', 'requirements'):
        (tmp_path / name).symlink_to(ROOT / name)
    fake = tmp_path / 'fake-python'
    fake.write_text(FAKE.format(log=tmp_path / 'log'))
    fake.chmod(0o755)
    return tmp_path


def quickstart(checkout: Path, *arguments: str) -> list[str]:
    """The Python commands of one run, environment checks left out."""
    (checkout / 'log').unlink(missing_ok=True)
    subprocess.run(
        ['bash', 'tools/quickstart.sh', *arguments], check=True, cwd=checkout,
        env={**os.environ, 'PYTHON': str(checkout / 'fake-python')})
    return [line for line in (checkout / 'log').read_text().splitlines()
            if line.startswith('tools/')]


def scripts(commands: list[str]) -> list[str]:
    return [Path(command.split()[0]).name for command in commands]


STEPS = {
    'detection': ['digits_on_photos.py', 'train.py', 'test.py',
                  'precision_recall.py'],
    'retrieval': ['train.py', 'test.py'],
    'descriptors': ['photo_patches.py', 'train.py', 'test.py',
                    'draw_matches.py'],
}


@pytest.mark.parametrize('job', STEPS)
def test_a_job_makes_data_trains_tests_and_draws(checkout, job):
    commands = quickstart(checkout, job)
    assert scripts(commands) == STEPS[job]
    for command in commands:
        for word in command.split():
            if word.startswith(('tools/', 'configs/')):
                assert (ROOT / word).is_file(), word
    # what is trained is not trained again
    assert scripts(quickstart(checkout, job)) == [
        step for step in STEPS[job] if step != 'train.py']


@pytest.mark.parametrize('job', STEPS)
def test_compare_trains_the_baseline_as_well(checkout, job):
    commands = quickstart(checkout, job, '--compare')
    trained = {command.split()[1] for command in commands
               if command.startswith('tools/train.py')}
    assert len(trained) == 2


def test_without_a_job_it_is_detection(checkout):
    assert scripts(quickstart(checkout)) == STEPS['detection']


def test_an_unknown_job_shows_the_usage(checkout):
    done = subprocess.run(
        ['bash', 'tools/quickstart.sh', 'detektion'], cwd=checkout,
        capture_output=True, text=True)
    assert done.returncode == 2
    assert "no 'detektion'" in done.stderr
    assert '[detection|retrieval|descriptors]' in done.stderr


@pytest.mark.parametrize('script', ['quickstart', 'run_tests'])
def test_help_makes_no_environment_and_shows_no_code(checkout, script):
    done = subprocess.run(
        ['bash', f'tools/{script}.sh', '--help'], cwd=checkout, check=True,
        capture_output=True, text=True,
        env={**os.environ, 'PYTHON': str(checkout / 'fake-python')})
    assert f'bash tools/{script}.sh' in done.stdout
    assert 'pipefail' not in done.stdout
    assert not (checkout / 'log').exists()
