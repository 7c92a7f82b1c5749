"""Runs stopped at any moment and resumed end as if never interrupted.

A child process trains through the tool; a hook stops it with SIGKILL, or with
SIGINT as Ctrl-C does. Each of the four methods has memory in its loss or its
sampler, which must come back.
"""

from __future__ import annotations

import json
import os
import random
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

from mmrank.datasets.generators.digits_on_photos import (
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)
from mmrank.datasets.generators.photo_patches import write_mosaics
from mmrank.engine.launch import train
from tests.processes import clean_context

CONFIGS = Path(__file__).parents[2] / 'configs'
EPOCHS = 3
HOOK = dict(type='mmrank.SeedByIterationHook')


@HOOKS.register_module(force=True)
class StopHook(Hook):
    """Sends its process a signal at an iteration, or in the next checkpoint.

    ``stop``, which a child process sets for itself, has ``iteration``: the
    signal comes before this one; ``signal``: which one; and ``writing``: not
    at once, but when the checkpoint that follows is written and does not
    have its name yet.
    """

    priority = 'HIGHEST'
    stop: dict | None = None

    def before_train_iter(self, runner, batch_idx, data_batch=None):
        if self.stop is None or runner.iter < self.stop['iteration']:
            return
        if not self.stop['writing']:
            os.kill(os.getpid(), self.stop['signal'])
        os.fsync = lambda _: os.kill(os.getpid(), self.stop['signal'])


def draw_stops(seed: int, length: int) -> list[dict]:
    """One stop in each epoch: SIGKILL, SIGKILL in a checkpoint, SIGINT."""
    draw = random.Random(seed)
    kinds = [(signal.SIGKILL, False), (signal.SIGKILL, True),
             (signal.SIGINT, draw.random() < .5)]
    draw.shuffle(kinds)
    return [dict(iteration=epoch * length + draw.randrange(length),
                 signal=kind, writing=writing)
            for epoch, (kind, writing) in enumerate(kinds)]


def shorten(cfg: Config, batch_size: int, **dataset: object) -> Config:
    """Three epochs, in the main process, with a record of each iteration."""
    loader = cfg.train_dataloader
    loader.update(batch_size=batch_size, num_workers=0,
                  persistent_workers=False)
    loader.dataset.update(dataset)
    cfg.train_cfg = dict(by_epoch=True, max_epochs=EPOCHS, val_interval=99)
    for key in ('val_cfg', 'val_dataloader', 'val_evaluator', 'test_cfg',
                'test_dataloader', 'test_evaluator'):
        cfg[key] = None
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1)
    cfg.default_hooks.logger.interval = 1
    # pictures are not what is compared
    cfg.custom_hooks = [HOOK, dict(type='StopHook')] + [
        hook for hook in cfg.get('custom_hooks', ())
        if hook.type == 'mmrank.DescriptorBankHook']
    cfg.randomness = dict(seed=1, deterministic=True)
    return cfg


def detection(folder: Path) -> Config:
    cfg = Config.fromfile(
        CONFIGS / 'rambo' / 'faster-rcnn_r18_fpn_rambo_digits.py')
    root = make_digits_on_photos(
        folder / 'digits',
        DigitsOnPhotosOptions(num_train=8, num_val=1, num_test=1))
    cfg = shorten(cfg, 2, data_root=f'{root}/')
    cfg.model.backbone.base_channels = 8
    cfg.model.neck.in_channels = [8, 16, 32]
    return cfg


def glyphs(name: str) -> Config:
    cfg = shorten(Config.fromfile(CONFIGS / name), 16, num_classes=6)
    cfg.model.backbone.widths = (8, 8, 16, 16)
    cfg.model.head.update(in_channels=16, embedding_size=16, num_classes=6)
    return cfg


def recall(folder: Path) -> Config:
    return glyphs('rambo/rambo-recall_small_log_glyphs.py')


def proxy_isa(folder: Path) -> Config:
    cfg = glyphs('proxy_isa/proxy-isa_small_glyphs.py')
    cfg.model.head.loss.update(
        memory_size=20, queue_start=0, weighting_start=1)
    return cfg


def adasample(folder: Path) -> Config:
    cfg = Config.fromfile(
        CONFIGS / 'adasample' / 'l2net-small_adasample_photo-patches.py')
    scene = folder / 'toy'
    scene.mkdir()
    patches = np.random.default_rng(0).integers(
        0, 255, (30, 64, 64), dtype=np.uint8)
    write_mosaics(scene, list(patches))
    (scene / 'info.txt').write_text(
        ''.join(f'{index // 3} 0\n' for index in range(30)))
    cfg = shorten(cfg, 4, data_root=str(folder), scene='toy')
    cfg.train_dataloader.sampler.update(batch_size=4, num_samples=16)
    cfg.model.backbone.widths = (4, 4, 8)
    return cfg


def adasample_online(folder: Path) -> Config:
    cfg = adasample(folder)
    cfg.model.sampler.mode = 'online'
    return cfg


METHODS = {
    'rambo map': detection,
    'rambo recall': recall,
    'proxy-isa': proxy_isa,
    'adasample bank': adasample,
    'adasample online': adasample_online,
}


def work(arguments: list[str], output: Path, stop: dict | None) -> None:
    """Of this module, so that a child registers the hook above."""
    with output.open('a') as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    # a shell's background job ignores it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    StopHook.stop = stop
    train(arguments)


def run(config: Path, work_dir: Path, *flags: str,
        stop: dict | None = None) -> int:
    """Trains in a child; its exit code, negative for a signal."""
    child = clean_context().Process(
        target=work,
        args=([str(config), '--work-dir', str(work_dir), *flags],
              work_dir.with_suffix('.out'), stop))
    child.start()
    child.join(120)
    assert child.exitcode is not None, 'the child hangs'
    return child.exitcode


def write(cfg: Config, path: Path) -> Path:
    cfg.dump(path)
    return path


def last_checkpoint(work_dir: Path) -> dict:
    return torch.load(work_dir / f'epoch_{EPOCHS}.pth', weights_only=False)


def losses(work_dir: Path) -> dict[int, float]:
    """Iteration to loss; of an iteration done twice the later one."""
    found = {}
    for path in sorted(work_dir.glob('*/vis_data/scalars.json')):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if 'loss' in record:
                found[record['step']] = record['loss']
    return found


def assert_same(found: object, expected: object, where: str = '') -> None:
    assert type(found) is type(expected), where
    if isinstance(expected, torch.Tensor):
        assert torch.equal(found, expected), where
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), where
        for key in expected:
            assert_same(found[key], expected[key], f'{where}.{key}')
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), where
        for index, pair in enumerate(zip(found, expected)):
            assert_same(*pair, f'{where}[{index}]')
    else:
        assert found == expected, where


@pytest.mark.parametrize('seed, method', [*enumerate(METHODS, 50)])
def test_stopped_in_every_epoch_and_resumed_ends_as_an_unstopped_run(
        seed, method, tmp_path):
    plain = write(METHODS[method](tmp_path), tmp_path / 'plain.py')
    assert run(plain, tmp_path / 'whole') == 0

    length = len(losses(tmp_path / 'whole')) // EPOCHS
    assert length > 1
    work_dir = tmp_path / 'stopped'
    for epoch, stop in enumerate(draw_stops(seed, length)):
        killed = stop['signal'] == signal.SIGKILL
        assert run(plain, work_dir, '--resume', stop=stop) == (
            -signal.SIGKILL if killed else 1), stop
        assert {path.name for path in work_dir.glob('*.pth')} == {
            f'epoch_{number + 1}.pth' for number in range(epoch)}, stop
        assert bool(list(work_dir.glob('.*.part'))) == (
            killed and stop['writing']), stop
    assert 'KeyboardInterrupt' in work_dir.with_suffix('.out').read_text()
    assert run(plain, work_dir, '--resume') == 0

    assert not list(work_dir.glob('.*.part'))
    found, expected = map(last_checkpoint, (work_dir, tmp_path / 'whole'))
    for key in ('state_dict', 'optimizer', 'param_schedulers'):
        assert_same(found[key], expected[key], key)
    assert losses(work_dir) == losses(tmp_path / 'whole')


def test_an_iteration_based_run_stopped_and_resumed_ends_as_an_unstopped_one(
        tmp_path):
    """Its images are turned at random, in the process that trains."""
    cfg = recall(tmp_path)
    cfg.train_dataloader.sampler = dict(type='InfiniteSampler')
    cfg.train_dataloader.dataset.pipeline.insert(1, dict(
        type='mmrank.ImageTransforms',
        transforms=[dict(type='RandomRotation', degrees=30)]))
    cfg.train_cfg = dict(by_epoch=False, max_iters=9, val_interval=99)
    cfg.default_hooks.checkpoint.update(interval=2, by_epoch=False)
    cfg.default_hooks.logger.log_metric_by_epoch = False
    cfg.param_scheduler = dict(type='LinearLR', by_epoch=False, end=9)
    plain = write(cfg, tmp_path / 'plain.py')
    assert run(plain, tmp_path / 'whole') == 0
    stop = dict(iteration=random.Random(1).randrange(3, 9),
                signal=signal.SIGKILL, writing=False)
    assert run(plain, tmp_path / 'stopped', stop=stop) == -signal.SIGKILL
    assert run(plain, tmp_path / 'stopped', '--resume') == 0
    found, expected = losses(tmp_path / 'stopped'), losses(tmp_path / 'whole')
    assert len(expected) == 9
    assert found == expected


def test_a_truncated_checkpoint_is_left_out_for_the_one_before(tmp_path):
    config = write(recall(tmp_path), tmp_path / 'plain.py')
    assert run(config, tmp_path / 'run') == 0
    whole = last_checkpoint(tmp_path / 'run')
    path = tmp_path / 'run' / f'epoch_{EPOCHS}.pth'
    path.write_bytes(path.read_bytes()[:-100])
    assert run(config, tmp_path / 'run', '--resume') == 0
    assert f'epoch_{EPOCHS}.pth is truncated or damaged' in \
        (tmp_path / 'run.out').read_text()
    assert_same(
        last_checkpoint(tmp_path / 'run')['state_dict'], whole['state_dict'])
