import json
import pickle
import runpy
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip('mmdet')

from mmdet.datasets import VOCDataset

from mmrank.datasets.generators.digits_on_photos import (
    CLASSES,
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)

ROOT = Path(__file__).parents[2]
TOOL = ROOT / 'tools' / 'analysis_tools' / 'precision_recall.py'
CONFIG = ROOT / 'configs' / 'rambo' / 'faster-rcnn_r18_fpn_ce_digits.py'


@pytest.fixture
def data(tmp_path):
    return make_digits_on_photos(
        tmp_path / 'digits', DigitsOnPhotosOptions(1, 1, 3))


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, 'argv', [str(TOOL), *map(str, arguments)])
    runpy.run_path(str(TOOL), run_name='__main__')


def dump(path, data, shift):
    """Results that are the truth, moved to the right."""
    dataset = VOCDataset(
        data_root=f'{data}/', ann_file='VOC2007/ImageSets/Main/test.txt',
        data_prefix=dict(sub_data_root='VOC2007/'), test_mode=True,
        metainfo=dict(classes=CLASSES), pipeline=[])
    results = []
    for index in range(len(dataset)):
        found = dataset.get_data_info(index)['instances']
        boxes = torch.tensor(
            [i['bbox'] for i in found], dtype=torch.float32).view(-1, 4)
        boxes[:, ::2] += shift
        results.append(dict(pred_instances=dict(
            bboxes=boxes, scores=torch.ones(len(found)),
            labels=torch.tensor([i['bbox_label'] for i in found]))))
    path.write_bytes(pickle.dumps(results))
    return path


def test_two_runs_are_compared_and_drawn(
        data, tmp_path, monkeypatch, capsys):
    right = dump(tmp_path / 'right.pkl', data, 0)
    wrong = dump(tmp_path / 'wrong.pkl', data, 60)
    run(monkeypatch, CONFIG, f'right={right}', f'wrong={wrong}',
        '--out-dir', tmp_path / 'out', '--images', 2, '--zoom', 2,
        '--cfg-options', f'test_dataloader.dataset.data_root={data}/')
    last = [line.split() for line in capsys.readouterr().out.splitlines()
            if line.strip().startswith('overall')]
    assert last == [['overall', '1.000', '0.000']]
    names = sorted(p.name for p in (tmp_path / 'out').glob('*.png'))
    assert names == [
        'precision_recall_0.png', 'right_000003_0.png', 'right_000005_0.png',
        'wrong_000003_0.png', 'wrong_000005_0.png']
    summary = json.loads(
        (tmp_path / 'out' / 'precision_recall.json').read_text())
    assert summary['right']['overall'] == 1


def test_results_that_are_missing_or_of_another_set_are_named(
        data, tmp_path, monkeypatch):
    options = ['--out-dir', tmp_path / 'out', '--cfg-options',
               f'test_dataloader.dataset.data_root={data}/']
    with pytest.raises(SystemExit, match='no.pkl does not exist'):
        run(monkeypatch, CONFIG, 'a=no.pkl', *options)
    short = tmp_path / 'short.pkl'
    short.write_bytes(pickle.dumps([]))
    with pytest.raises(SystemExit, match='results of 0 images.* has 3'):
        run(monkeypatch, CONFIG, f'a={short}', *options)
