"""The digits config trains and is evaluated by mmdet's tool and by ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

mmdet = pytest.importorskip('mmdet')

from mmrank.datasets.generators.digits_on_photos import (  # noqa: E402
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)

ROOT = Path(__file__).parents[2]
TOOLS = {
    'mmdet': Path(mmdet.__file__).parent / '.mim' / 'tools',
    'mmrank': ROOT / 'tools',
}


@pytest.mark.parametrize('owner', TOOLS)
def test_a_few_iterations_of_the_digits_config(owner, tmp_path):
    data = make_digits_on_photos(
        tmp_path / 'digits', DigitsOnPhotosOptions(24, 4, 2))
    loaders = ('train', 'val', 'test')
    done = subprocess.run(
        [sys.executable, TOOLS[owner] / 'train.py',
         ROOT / 'configs/rambo/faster-rcnn_r18_fpn_rambo_digits.py',
         '--work-dir', tmp_path / 'run', '--cfg-options',
         'train_cfg.max_epochs=1', 'train_cfg.val_interval=1',
         'default_hooks.logger.interval=1',
         *(f'{k}_dataloader.dataset.data_root={data}/' for k in loaders),
         *(f'{k}_dataloader.num_workers=0' for k in loaders),
         *(f'{k}_dataloader.persistent_workers=False' for k in loaders)],
        capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, 'PYTHONPATH': str(ROOT), 'OMP_NUM_THREADS': '1'})
    log = done.stdout + done.stderr
    assert done.returncode == 0, log[-3000:]
    for part in ('Epoch(train) [1][3/3]', 'per_class_term',
                 'cross_class_term', 'pascal_voc/AP50:',
                 'pascal_voc/AP50_seven:'):
        assert part in log
    assert (tmp_path / 'run' / 'epoch_1.pth').is_file()
