"""The shell and torchrun launchers: real runs of two CPU processes."""

import os
import re
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmrank.engine.launch import train

from ..toy import CONFIG

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return str(probe.getsockname()[1])


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT), os.environ.get('PYTHONPATH', '')]
    return {**os.environ, 'PYTHON': sys.executable, 'OMP_NUM_THREADS': '1',
            'PYTHONPATH': os.pathsep.join(filter(None, paths)),
            'CUDA_VISIBLE_DEVICES': '-1', 'PORT': free_port(), **more}


def launch(*command: str, **more: str) -> str:
    done = subprocess.run(
        [str(part) for part in command], env=environment(**more),
        capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def load(path: Path) -> dict:
    return torch.load(path, weights_only=False)


@pytest.fixture(scope='module')
def folder(tmp_path_factory) -> Path:
    """With a config, and a run of one epoch by two processes in ``two``."""
    folder = tmp_path_factory.mktemp('launchers')
    (folder / 'toy.py').write_text(CONFIG.replace(
        'shuffle=True', 'shuffle=False'))
    log = launch('bash', ROOT / 'tools/dist_train.sh', folder / 'toy.py', '2',
                 '--work-dir', folder / 'two', '--cfg-options',
                 'train_dataloader.batch_size=2', 'train_cfg.max_epochs=1')
    assert 'Epoch(train)' in log
    return folder


@pytest.fixture
def config(folder: Path) -> Path:
    return folder / 'toy.py'


def test_two_processes_train_what_one_trains_on_the_joined_batch(
        folder, config, monkeypatch):
    monkeypatch.setenv('LOCAL_RANK', '0')
    alone = train([str(config), '--work-dir', str(folder / 'one'),
                   '--cfg-options', 'train_cfg.max_epochs=1'])
    together = load(folder / 'two/epoch_1.pth')
    assert together['meta']['iter'] == alone.iter == 4
    torch.testing.assert_close(together['state_dict']['plane.weight'],
                               alone.model.plane.weight.data)
    assert alone.model.plane.weight.abs().max() > 0.1, 'nothing was learnt'


def test_torchrun_goes_on_where_the_script_stopped(folder, config):
    log = launch(sys.executable, '-m', 'torch.distributed.run',
                 '--nproc_per_node=2', '--master_port', free_port(),
                 ROOT / 'tools/train.py', config, '--launcher', 'pytorch',
                 '--work-dir', folder / 'two', '--resume', '--cfg-options',
                 'train_cfg.max_epochs=2', 'train_dataloader.batch_size=2')
    assert 'resumed epoch: 1' in log
    assert load(folder / 'two/epoch_2.pth')['meta']['iter'] == 8


def test_evaluation_on_two_processes_leaves_the_padded_sample_out(
        folder, config, tmp_path):
    log = launch('bash', ROOT / 'tools/dist_test.sh', config,
                 folder / 'two/epoch_1.pth', '2', '--work-dir', tmp_path)
    assert re.search(r'samples: 7\b', log), log


@pytest.fixture
def slurm(tmp_path: Path) -> Path:
    """A folder with an srun that starts two tasks with slurm's variables."""
    folder = tmp_path / 'bin'
    folder.mkdir()
    (folder / 'srun').write_text(f'''#!/usr/bin/env bash
echo "srun $*" > {tmp_path}/asked
[ -n "${{DRY:-}}" ] && exit
while [[ $1 == -* ]]; do [ "$1" = -p ] && shift; shift; done
export SLURM_NTASKS=2 SLURM_NODELIST=localhost
SLURM_PROCID=1 SLURM_LOCALID=1 "$@" &
SLURM_PROCID=0 SLURM_LOCALID=0 "$@" && wait $!
''')
    (folder / 'scontrol').write_text('#!/bin/sh\necho localhost\n')
    for file in folder.iterdir():
        file.chmod(file.stat().st_mode | stat.S_IEXEC)
    return folder


def test_slurm_tasks_without_gpus_train_together(config, tmp_path, slurm):
    launch('bash', ROOT / 'tools/slurm_train.sh', 'short', 'toy', config,
           tmp_path / 'run', '--cfg-options', 'train_cfg.max_epochs=1',
           GPUS='2', GPUS_PER_NODE='0', MASTER_PORT=free_port(),
           PATH=f'{slurm}:{os.environ["PATH"]}')
    assert '--gres' not in (tmp_path / 'asked').read_text()
    checkpoint = load(tmp_path / 'run/epoch_1.pth')
    assert checkpoint['meta']['iter'] == 2, 'two tasks share four batches'


@pytest.mark.parametrize('script, place', [
    ('slurm_train.sh', 'train.py c.py --work-dir w --launcher slurm --amp'),
    ('slurm_test.sh', 'test.py c.py w --launcher slurm --amp')])
def test_slurm_scripts_ask_for_gpus_and_pass_the_flags(
        tmp_path, slurm, script, place):
    launch('bash', ROOT / 'tools' / script, 'short', 'toy', 'c.py', 'w',
           '--amp', GPUS='16', GPUS_PER_NODE='4', SRUN_ARGS='--qos=low',
           DRY='yes', PATH=f'{slurm}:{os.environ["PATH"]}')
    asked = (tmp_path / 'asked').read_text()
    assert ('-p short --job-name=toy --gres=gpu:4 --ntasks-per-node=4 '
            '--ntasks=16') in asked
    assert '--qos=low' in asked
    assert asked.strip().endswith(place)


@pytest.mark.parametrize('script', [
    'dist_train.sh', 'dist_test.sh', 'slurm_train.sh', 'slurm_test.sh'])
def test_a_launcher_without_arguments_prints_its_usage(script):
    done = subprocess.run(['bash', ROOT / 'tools' / script],
                          capture_output=True, text=True)
    assert done.returncode == 2
    assert f'bash tools/{script}' in done.stderr
