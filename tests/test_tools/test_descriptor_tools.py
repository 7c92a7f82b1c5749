"""The descriptor tools, each on a tiny input."""

import csv
import sys

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from mmrank.apis import init_descriptor
from mmrank.datasets.generators import photo_patches as pp

from .loading import TOOLS, load_tool


def read_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def call(path, monkeypatch, *arguments):
    module = load_tool(path)
    monkeypatch.setattr(sys, 'argv', [path, *map(str, arguments)])
    module.main()
    return module


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pp, 'SCENES', dict(photos_train=('coins', 'page'),
                                         photos_test=('text', 'clock')))
        return pp.write_photo_patches(
            tmp_path_factory.mktemp('data') / 'photos',
            keypoints_per_photo=8, num_pairs=40)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return init_descriptor(Config(dict(model=dict(
        type='mmrank.DescriptorLearner',
        backbone=dict(type='mmrank.L2Net', widths=(4, 4, 4)),
        loss=dict(type='mmrank.HingeTripletLoss')))))


@pytest.mark.parametrize('suffix', ['.pt', '.onnx'])
def test_export_equals_the_model_for_any_number_of_patches(
        model, tmp_path, suffix):
    if suffix == '.onnx':
        pytest.importorskip('onnx')
        pytest.importorskip('onnxruntime')
    module = load_tool('export_descriptor.py')
    assert module.export(model, tmp_path / f'net{suffix}') < 1e-5
    assert (tmp_path / f'net{suffix}').is_file()


def test_export_names_the_formats_it_knows(model, tmp_path):
    with pytest.raises(ValueError, match='.pt .*or .onnx'):
        load_tool('export_descriptor.py').export(model, tmp_path / 'net.bin')


def test_stereo_matches_are_judged_by_the_ground_truth_disparity(
        model, tmp_path):
    module = load_tool('analysis_tools/draw_matches.py')
    left, right, disparity = module.stereo_pair()
    assert left.shape == right.shape == disparity.shape
    points = np.array([[300., 200., 8.], [400., 300., 8.]])
    shift = disparity[points[:, 1].astype(int), points[:, 0].astype(int)]
    there = points - np.stack([shift, 0 * shift, 0 * shift], 1)
    good = module.right_matches(np.array([[0, 0], [1, 1], [0, 1]]), points,
                                there, disparity, 3.)
    assert good.tolist() == [True, True, False]
    result = module.evaluate(model, count=60)
    assert len(result['matches']) == len(result['right']) > 0
    module.draw(result, tmp_path / 'matches.png')
    picture = cv2.imread(str(tmp_path / 'matches.png'))
    assert picture.shape == (left.shape[0], 2 * left.shape[1], 3)


def test_sift_matches_the_stereo_pair():
    module = load_tool('analysis_tools/draw_matches.py')
    sift = init_descriptor(str(TOOLS.parent / 'configs/adasample'
                               / 'sift_photo-patches.py'))
    result = module.evaluate(sift, count=600)
    assert result['right'].mean() > .3


def test_reproduction_is_resumed_cell_by_cell(data, tmp_path, monkeypatch,
                                              capsys):
    out = tmp_path / 'table'
    arguments = (data, '--out', out, '--steps', 2, '--batch', 4, '--width',
                 2, '--seeds', 2, '--max-cells', 2)

    def rows():
        return read_rows(out.with_suffix('.csv'))

    module = call('reproduce/descriptors.py', monkeypatch, *arguments)
    first = rows()
    assert [(r['lambda'], r['loss'], r['seed']) for r in first] == \
        [('0.0', 'SIFT', '0'), ('0.0', 'AHT', '0')]
    assert all(row.values() for row in first)
    assert first[0]['command'].startswith(
        'python tools/reproduce/descriptors.py')
    call('reproduce/descriptors.py', monkeypatch, *arguments)
    assert rows()[:2] == first and len(rows()) == 4
    assert out.with_suffix('.svg').is_file()
    assert 'Mann-Whitney' in out.with_suffix('.md').read_text()
    cells = module.cells(5)
    assert len(cells) == len(set(cells)) == 1 + 10 + 12


def test_mann_whitney_needs_and_uses_both_sides():
    module = load_tool('reproduce/descriptors.py')
    done = {(value, 'AHT', seed): {name: str(value - seed / 10)
                                   for name in module.SCORES}
            for value in (0., 10.) for seed in range(5)}
    # 5 against 5, entirely apart: 1 / C(10, 5)
    assert module._compare(done, 'matching')[-2:] == ('5, 5', '0.004')
    assert module._compare(done, 'FPR95')[-2:] == ('5, 5', '1.000')
    assert module._compare({}, 'FPR95')[-1] == '-'


def test_informativeness_is_the_exact_norm_of_each_samples_gradient():
    module = load_tool('reproduce/informativeness.py')
    net = module.build(2, 'euclidean', 0).eval().backbone
    triplets = torch.randn(5, 3, 1, 32, 32)
    got = module.gradient_norms(net, triplets, 'euclidean', chunk_size=2)
    for triplet, norm in zip(triplets, got):
        a, p, n = net(triplet)
        loss = (1 + (a - p).square().sum() - (a - n).square().sum()).relu()
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        want = torch.cat([g.flatten() for g in gradients]).norm()
        torch.testing.assert_close(norm, want, rtol=1e-3, atol=1e-5)


def test_informativeness_writes_correlations_and_the_plot(
        data, tmp_path, monkeypatch):
    out = tmp_path / 'info'
    call('reproduce/informativeness.py', monkeypatch, data, '--out', out,
         '--classes', 4, '--steps', 2, '--moments', 2, '--batch', 4,
         '--width', 2)
    rows = read_rows(out.with_suffix('.csv'))
    assert [row['step'] for row in rows] == ['0', '2']
    assert all(-1 <= float(row['pearson']) <= 1 for row in rows)
    assert out.with_suffix('.svg').is_file()


def test_step_benchmark_prints_both_targets(monkeypatch, capsys):
    call('benchmarks/adasample_step.py', monkeypatch, '--classes', 8,
         '--patches', 3, '--width', 2, '--repeats', 1)
    text = capsys.readouterr().out
    assert '(target 3 %)' in text and '(target 1.15)' in text


def test_converter_writes_both_formats(tmp_path, monkeypatch):
    monkeypatch.setattr(pp, 'SCENES', dict(photos_train=('coins',),
                                           photos_test=('text',)))
    call('dataset_converters/photo_patches.py', monkeypatch,
         tmp_path / 'out', '--keypoints-per-photo', 6, '--num-pairs', 20)
    assert (tmp_path / 'out/phototour/photos_train/info.txt').is_file()
    assert (tmp_path / 'out/hpatches/splits.json').is_file()
