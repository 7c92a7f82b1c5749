"""Checkpoint files: whole or absent, and which one is the newest."""

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmrank.engine.hooks.atomic_checkpoint import (
    AtomicLocalBackend,
    _remove_leftovers,
)
from mmrank.files import find_last_readable, is_readable

from ..processes import clean_context
from ..toy import CONFIG


def save(path: Path) -> Path:
    torch.save(dict(state_dict=dict(w=torch.arange(500.0))), path)
    return path


@pytest.mark.parametrize('damage', [
    lambda data: b'', lambda data: data[:len(data) // 2],
    lambda data: data[:-1], lambda data: b'\0' * len(data),
    lambda data: data[:1000] + b'\xff' + data[1001:]],
    ids=['zero-byte', 'half', 'one byte short', 'zeros', 'one byte flipped'])
def test_damaged_file_is_not_readable(tmp_path, damage):
    path = save(tmp_path / 'a.pth')
    assert is_readable(path)
    path.write_bytes(damage(path.read_bytes()))
    assert not is_readable(path)


def test_newest_is_by_number_and_a_file_that_is_no_checkpoint_is_passed_over(
        tmp_path):
    for name in ('epoch_9.pth', 'epoch_10.pth', 'best_ap_epoch_12.pth'):
        save(tmp_path / name)
    (tmp_path / 'epoch_11.pth').write_text('not one')
    # a run killed between the file and the note about it
    (tmp_path / 'last_checkpoint').write_text(str(tmp_path / 'epoch_9.pth'))
    assert find_last_readable(tmp_path) == str(tmp_path / 'epoch_10.pth')


def test_checkpoint_that_lies_elsewhere_is_found_by_the_note(tmp_path):
    other = save(tmp_path / 'custom.pth')
    run = tmp_path / 'run'
    run.mkdir()
    assert find_last_readable(run) is None
    (run / 'last_checkpoint').write_text('')
    assert find_last_readable(run) is None
    (run / 'last_checkpoint').write_text(str(other))
    assert find_last_readable(run) == str(other)


def test_failed_write_leaves_the_file_that_was_there_and_no_part(tmp_path):
    backend, path = AtomicLocalBackend(), tmp_path / 'a.pth'
    backend.put(b'first', path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError):
            backend.put(b'x' * 1000, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == b'first'
    assert list(tmp_path.iterdir()) == [path]


KILLED = """
import os, signal, sys
import mmrank.engine.hooks.atomic_checkpoint as atomic
from mmrank.engine.launch import train
replace, saved = os.replace, []
def killed_at_the_third(part, target):
    saved.append(target)
    if len(saved) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    replace(part, target)
atomic.os.replace = killed_at_the_third
train(sys.argv[1:])
"""


def test_run_killed_during_a_write_keeps_the_checkpoint_before(tmp_path):
    from mmrank.engine import launch
    config, run = tmp_path / 'toy.py', tmp_path / 'run'
    # one kept checkpoint: MMEngine's hook deletes it before it writes
    config.write_text(CONFIG.replace(
        'interval=1)', 'interval=1, max_keep_ckpts=1)', 1))
    flags = [str(config), '--work-dir', str(run)]
    done = subprocess.run([sys.executable, '-c', KILLED, *flags],
                          cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    assert [path.name for path in run.glob('*.pth')] == ['epoch_2.pth']
    assert len(list(run.glob('.*.part'))) == 1
    runner = launch.train([*flags, '--resume'])
    assert runner.iter == 12
    assert [path.name for path in run.glob('*.pth')] == ['epoch_3.pth']
    assert not list(run.glob('.*.part')), 'the part was cleared'


def train_slowly(flags, writing, may_go_on):
    """Stays within its first checkpoint until it may go on."""
    from mmrank.engine import launch

    def wait(_):
        writing.set()
        assert may_go_on.wait(100)

    os.fsync = wait
    launch.train(flags)


def test_a_run_leaves_what_another_in_its_folder_is_writing(tmp_path):
    from mmrank.engine import launch
    config, run = tmp_path / 'shared_toy.py', tmp_path / 'run'
    config.write_text(CONFIG.replace('max_epochs=3', 'max_epochs=1'))
    flags = [str(config), '--work-dir', str(run)]
    context = clean_context()
    writing, may_go_on = context.Event(), context.Event()
    other = context.Process(
        target=train_slowly, args=(flags, writing, may_go_on), daemon=True)
    other.start()
    assert writing.wait(100)
    part, = run.glob('.*.part')
    launch.train(flags)
    assert part.exists()
    may_go_on.set()
    other.join(100)
    assert other.exitcode == 0
    assert is_readable(run / 'epoch_1.pth')
    assert not list(run.glob('.*.part'))


def test_leftovers_go_when_their_writer_is_known_to_be_gone(tmp_path):
    gone = subprocess.Popen([sys.executable, '-c', ''])
    gone.wait()
    here, me = socket.gethostname(), os.getpid()
    stay = {f'.a.pth.{here}.{os.getppid()}.x1_.part',
            f'.a.pth.{here}.b.{gone.pid}.x1_.part',
            f'.a.pth.b.{here}.{gone.pid}.x1_.part',
            f'.gallery.npz.{here}.{gone.pid}.x1_.part',
            f'a.pth.{here}.{gone.pid}.x1_.part', 'a.pth'}
    for name in (*stay, f'.a.pth.{here}.{gone.pid}.x1_.part',
                 f'.a.pth.{here}.{me}.x1_.part'):
        (tmp_path / name).touch()
    _remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == stay
