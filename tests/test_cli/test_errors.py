"""What a user gets wrong is one line; --debug shows the traceback."""

import logging
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mmrank.cli import COMMANDS, main
from mmrank.cli.main import in_one_line

from ..toy import CONFIG

ROOT = Path(__file__).parents[2]
EMBEDDER = """
model = dict(
    type='mmrank.MetricLearner', backbone=dict(type='mmrank.SmallConvNet'),
    head=dict(
        type='mmrank.MetricLearningHead', in_channels=128, embedding_size=4,
        num_classes=2, loss=dict(type='mmrank.ProxyAnchorLoss', %s)))
train_dataloader = dict(
    batch_size=2, num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='mmrank.FolderRetrievalDataset', data_root='no/data'))
train_cfg = dict(by_epoch=True, max_epochs=1)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.1))
"""


def run(*words, folder):
    """The command in a process of its own: exit status and what it says."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True)
    return done.returncode, done.stderr


def spoiled(tmp_path, kind):
    """The words of a command that has one thing wrong."""
    config = tmp_path / 'config.py'
    config.write_text(CONFIG)
    if kind == 'missing config':
        return ['train', 'nothere.py']
    if kind == 'misspelt key':
        config.write_text(EMBEDDER % 'marginn=1.')
    if kind == 'wrong type':
        config.write_text((EMBEDDER % '').replace(
            'embedding_size=4', "embedding_size='wide'"))
    if kind == 'unknown part':
        config.write_text((EMBEDDER % '').replace('ProxyAnchorLoss', 'NoLoss'))
    if kind == 'missing data folder':
        config.write_text(EMBEDDER % '')
    if kind == 'config that is no Python':
        config.write_text('model = dict(')
    if kind == 'unreadable checkpoint':
        (tmp_path / 'half.pth').write_bytes(b'PK\3\4 and no more')
        return ['test', 'config.py', 'half.pth']
    return ['train', 'config.py']


KINDS = {
    'missing config': 'nothere.py',
    'misspelt key': "ProxyAnchorLoss.*'marginn'",
    'wrong type': 'TypeError|MetricLearningHead',
    'unknown part': 'NoLoss',
    'missing data folder': 'no/data',
    'config that is no Python': r'config\.py|syntax|never closed',
    'unreadable checkpoint': r'half\.pth is truncated or damaged'}


@pytest.mark.parametrize('kind', KINDS)
def test_a_users_error_is_one_line_that_names_it(
        kind, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    # loggers of tests before hold streams that are closed by now
    monkeypatch.setattr(logging, 'raiseExceptions', False)
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '-1')
    monkeypatch.setenv('LOCAL_RANK', '0')
    words = spoiled(tmp_path, kind)
    assert main(words) == 1
    said = capfd.readouterr().err
    assert 'Traceback' not in said
    last = said.rstrip().splitlines()[-1]
    assert last.startswith(f'mmrank {words[0]}: ')
    assert re.search(KINDS[kind], last), last
    assert '?.' not in last
    with pytest.raises(Exception, match='.'):
        main([*words, '--debug'])


@pytest.mark.parametrize('start', [
    ['-m', 'mmrank', 'train'], [str(ROOT / 'tools' / 'train.py')]])
def test_command_and_tool_say_it_in_a_process_of_their_own(start, tmp_path):
    status, said = run(*start, 'nothere.py', folder=ROOT)
    assert status == 1 and 'Traceback' not in said
    last = said.splitlines()[-1]
    assert last.startswith('mmrank train: ') and 'nothere.py' in last
    status, said = run(*start, 'nothere.py', '--debug', folder=ROOT)
    assert status == 1 and 'Traceback' in said


def test_wrong_usage_is_2_and_names_the_command(capsys):
    assert main(['train']) == 2
    assert 'usage: mmrank train' in capsys.readouterr().err
    assert main(['train', '--help']) == 0


@pytest.mark.parametrize('name', COMMANDS)
def test_every_command_of_the_table_has_its_file(name, capsys):
    assert main([name, '--help']) == 0
    assert f'usage: mmrank {name}' in capsys.readouterr().out


def test_a_missing_key_is_named_as_one():
    assert in_one_line(KeyError('lr')) == "the key 'lr' is missing"
