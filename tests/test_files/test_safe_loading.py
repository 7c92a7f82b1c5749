"""No file that a user names may run code of its own while it is read."""

import os
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from PIL import Image

from mmrank.apis import EmbeddingExtractor, GallerySearch, init_descriptor
from mmrank.engine import launch
from mmrank.files import load_results, load_weights

from ..toy import CONFIG

EMBEDDER = """
model = dict(
    type='mmrank.MetricLearner', backbone=dict(type='mmrank.SmallConvNet'),
    head=dict(
        type='mmrank.MetricLearningHead', in_channels=128, embedding_size=4,
        num_classes=2, loss=dict(type='mmrank.ProxyAnchorLoss')))
test_pipeline = [dict(type='mmrank.LoadImage'),
                 dict(type='mmrank.PackRetrievalInputs')]
"""
SHIPPED = Path(__file__).parents[2] / 'configs'


class Code:
    """Makes a file when it is unpickled."""

    def __init__(self, proof):
        self.proof = proof

    def __reduce__(self):
        return os.mkdir, (str(self.proof), )


class Storage:
    """A tensor's storage, as it pickles, with a content of one's choice."""

    def __init__(self, content):
        self.content = content

    def __reduce__(self):
        return torch.storage._load_from_bytes, (self.content, )


def as_checkpoint(proof, path):
    torch.save(dict(state_dict={}, meta={}, extra=Code(proof)), path)


def as_plain_pickle(proof, path):
    path.write_bytes(pickle.dumps(Code(proof)))


def as_old_checkpoint(proof, path):
    torch.save(dict(state_dict={}, extra=Code(proof)), path,
               _use_new_zipfile_serialization=False)


@pytest.fixture(params=[as_checkpoint, as_plain_pickle, as_old_checkpoint])
def evil(request, tmp_path):
    """A file that makes the folder ``ran`` beside it when code runs."""
    path = tmp_path / 'evil.pth'
    request.param(tmp_path / 'ran', path)
    yield path
    assert not (tmp_path / 'ran').exists(), 'the file ran its code'


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '-1')
    monkeypatch.setenv('LOCAL_RANK', '0')
    path = tmp_path / 'toy.py'
    path.write_text(CONFIG)
    return [str(path), '--work-dir', str(tmp_path / 'run')]


@pytest.fixture
def descriptor():
    return str(next(SHIPPED.glob('adasample/*hardnet*.py')))


def test_training_resumes_and_starts_from_weights_alone(evil, toy):
    for flags in (['--resume', str(evil)],
                  ['--cfg-options', f'load_from={evil}']):
        with pytest.raises((ValueError, pickle.UnpicklingError)):
            launch.train([*toy, *flags])


def test_evaluation_reads_weights_alone(evil, toy):
    with pytest.raises((ValueError, pickle.UnpicklingError)):
        launch.test([toy[0], str(evil), *toy[1:]])


def test_extractor_reads_weights_alone(evil, tmp_path):
    (tmp_path / 'embedder.py').write_text(EMBEDDER)
    with pytest.raises(ValueError):
        EmbeddingExtractor(tmp_path / 'embedder.py', evil, 'cpu')


def test_descriptor_and_its_export_read_weights_alone(
        evil, descriptor, tmp_path, monkeypatch):
    with pytest.raises(ValueError):
        init_descriptor(descriptor, str(evil))
    from tools import export_descriptor
    monkeypatch.setattr(sys, 'argv', [
        'export', descriptor, str(evil), str(tmp_path / 'out.pt')])
    with pytest.raises((ValueError, SystemExit)):
        export_descriptor.main()
    assert not (tmp_path / 'out.pt').exists()


def test_detection_reads_weights_alone(evil, tmp_path, capsys):
    pytest.importorskip('mmdet.apis')
    from mmrank.__main__ import main
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / '0.png')
    assert main(['detect', 'rambo/faster-rcnn_r18_fpn_ce_digits.py',
                 str(evil), str(tmp_path / '0.png'), '--device', 'cpu',
                 '--out-dir', str(tmp_path / 'out')]) == 1


def test_gallery_reads_arrays_alone(evil, tmp_path):
    with pytest.raises(ValueError, match='no gallery'):
        GallerySearch.load(evil)
    array = np.array([Code(tmp_path / 'ran')], dtype=object)
    np.savez(tmp_path / 'evil.npz', meta=array, embeddings=array)
    with pytest.raises(ValueError, match='damaged or no gallery'):
        GallerySearch.load(tmp_path / 'evil.npz')


def test_results_hold_arrays_and_tensors_alone(evil, tmp_path):
    results = [dict(img_id=1, ori_shape=(4, 5), pred_instances=dict(
        bboxes=torch.rand(3, 4), labels=np.arange(3)))]
    file = tmp_path / 'results.pkl'
    file.write_bytes(pickle.dumps(results))
    found, = load_results(file)
    assert found['ori_shape'] == (4, 5)
    assert torch.equal(found['pred_instances']['bboxes'],
                       results[0]['pred_instances']['bboxes'])
    assert (found['pred_instances']['labels'] == np.arange(3)).all()
    with pytest.raises(ValueError, match='holds no results'):
        load_results(evil)
    # within a tensor's storage pickle would load with a pickle of its own
    file.write_bytes(pickle.dumps(Storage(evil.read_bytes())))
    with pytest.raises(ValueError, match='holds no results'):
        load_results(file)
    file.write_bytes(pickle.dumps(results)[:-20])
    with pytest.raises(ValueError, match='results.pkl holds no results'):
        load_results(file)


def test_a_checkpoint_with_a_descriptor_bank_is_read_and_a_false_bank_not(
        evil, descriptor, tmp_path):
    model = init_descriptor(descriptor)
    weights = dict(state_dict=model.state_dict(),
                   descriptor_bank=torch.arange(6.))
    torch.save(weights, tmp_path / 'good.pth')
    found = load_weights(model, tmp_path / 'good.pth')
    assert found['descriptor_bank'].tolist() == [0, 1, 2, 3, 4, 5]
    weights['descriptor_bank'] = Code(tmp_path / 'ran')
    torch.save(weights, tmp_path / 'bad.pth')
    with pytest.raises(ValueError, match='could run code'):
        load_weights(model, tmp_path / 'bad.pth')


def test_a_file_that_one_trusts_may_be_read_by_name_of_pytorchs_switch(
        tmp_path, monkeypatch, descriptor):
    path = tmp_path / 'mine.pth'
    model = init_descriptor(Config.fromfile(descriptor))
    torch.save(dict(state_dict=model.state_dict(), note=Path('here')), path)
    with pytest.raises(ValueError, match='NO_WEIGHTS_ONLY_LOAD=1'):
        load_weights(model, path)
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', '1')
    assert load_weights(model, path)['note'] == Path('here')
