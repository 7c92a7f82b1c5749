import json
import sys

import numpy as np
import pytest
from PIL import Image

from mmrank.__main__ import main
from mmrank.apis import EmbeddingExtractor, GallerySearch
from mmrank.cli.images import find_images

CONFIG = """
model = dict(
    type='mmrank.MetricLearner',
    backbone=dict(type='mmrank.TimmBackbone', model_name='resnet10t'),
    head=dict(
        type='mmrank.MetricLearningHead', in_channels=512, embedding_size=6,
        num_classes=2, loss=dict(type='mmrank.ProxyAnchorLoss')))
test_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms',
         transforms=[dict(type='Resize', size=(32, 32))]),
    dict(type='mmrank.PackRetrievalInputs')]
"""


@pytest.fixture(scope='module')
def setting(tmp_path_factory):
    """A config, its weights, and two classes of three images."""
    import torch
    pytest.importorskip('timm')
    folder = tmp_path_factory.mktemp('command_line')
    (folder / 'config.py').write_text(CONFIG)
    torch.manual_seed(0)
    extractor = EmbeddingExtractor(folder / 'config.py', device='cpu')
    torch.save(dict(state_dict=extractor.model.state_dict()),
               folder / 'weights.pth')
    generator = np.random.default_rng(0)
    for name in ('cat', 'dog'):
        (folder / 'images' / name).mkdir(parents=True)
        for number in range(3):
            pixels = generator.integers(0, 256, (40, 40, 3), np.uint8)
            Image.fromarray(pixels).save(
                folder / 'images' / name / f'{number}.png')
    return folder


@pytest.fixture
def model(setting, monkeypatch):
    monkeypatch.chdir(setting)
    return ['config.py', 'weights.pth', '--device', 'cpu']


def test_embeds_a_folder_and_searches_it(model, setting, tmp_path, capsys):
    gallery = str(tmp_path / 'gallery.npz')
    assert main(['embed', *model, 'images', '--out', gallery]) == 0
    assert '6 embeddings of 2 classes, 6 wide' in capsys.readouterr().out
    loaded = GallerySearch.load(gallery)
    assert loaded.classes == ['cat', 'dog']
    assert loaded.labels.tolist() == [0, 0, 0, 1, 1, 1]

    picture, found = tmp_path / 'found.png', tmp_path / 'found.json'
    query = 'images/dog/1.png'
    assert main(['search', *model, gallery, query, '--k', '2', '--json',
                 str(found), '--picture', str(picture)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == query
    assert printed[1].split() == ['1.0000', 'dog', query]
    result = json.loads(found.read_text())
    assert result[0]['query'] == query
    assert result[0]['neighbours'][0]['class'] == 'dog'
    assert Image.open(picture).width > 100


@pytest.mark.parametrize('arguments, message', [
    (['nowhere.npz', 'images'], 'nowhere.npz'),
    (['config.py', 'images'], 'damaged or no gallery'),
    (['small.npz', 'images'], '3 dimensions.*6'),
    (['other.npz', 'images'], 'made by model abc'),
    (['small.npz', 'nobody.png'], 'no image .nobody.png'),
])
def test_a_wrong_gallery_or_image_ends_with_one_line(
        model, setting, arguments, message, capsys):
    GallerySearch(np.eye(3)).save(setting / 'small.npz')
    GallerySearch(np.eye(6), model_id='abc').save(setting / 'other.npz')
    assert main(['search', *model, *arguments]) == 1
    shown = capsys.readouterr().err
    assert shown.startswith('mmrank search: ') and shown.count('\n') == 1
    import re
    assert re.search(message, shown)


def test_a_config_may_be_changed_on_the_command_line(model, tmp_path,
                                                     capsys):
    assert main(['embed', *model, 'images/cat/0.png', '--out',
                 str(tmp_path / 'g.npz'), '--cfg-options',
                 'model.head.embedding_size=9']) == 1
    assert 'does not fit the config' in capsys.readouterr().err


def test_images_of_a_flat_folder_have_no_classes(setting):
    paths, labels, classes = find_images([str(setting / 'images' / 'cat')])
    assert len(paths) == 3 and labels is None and classes is None


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match='no image under'):
        find_images([str(tmp_path)])


def test_detection_is_mmdets_own_inferencer(setting, monkeypatch, tmp_path):
    mmdet = pytest.importorskip('mmdet.apis')
    seen = {}

    class Inferencer:

        def __init__(self, config, weights, device):
            seen.update(config=config, weights=weights, device=device)

        def __call__(self, images, **kwargs):
            seen.update(images=images, **kwargs)
            return {}

    monkeypatch.setattr(mmdet, 'DetInferencer', Inferencer)
    monkeypatch.chdir(setting)
    assert main(['detect', 'config.py', 'weights.pth', 'images/cat',
                 '--out-dir', str(tmp_path)]) == 0
    assert len(seen['images']) == 3
    assert seen['out_dir'] == str(tmp_path)


def test_detection_without_mmdet_names_the_remedy(setting, monkeypatch,
                                                  capsys):
    monkeypatch.setitem(sys.modules, 'mmdet.apis', None)
    monkeypatch.chdir(setting)
    assert main(['detect', 'config.py', 'weights.pth', 'images']) == 1
    assert 'python -m mmrank check' in capsys.readouterr().err


def test_the_inferencer_of_detectors_is_mmdets():
    mmdet = pytest.importorskip('mmdet.apis')
    from mmrank import apis
    assert apis.DetInferencer is mmdet.DetInferencer
    with pytest.raises(AttributeError, match='NoSuchThing'):
        apis.NoSuchThing  # noqa: B018


def test_help_is_printed_and_an_unknown_command_is_named(capsys):
    assert main(['--help']) == main([]) == 0
    assert capsys.readouterr().out.count('usage: ') == 2
    assert main(['trian']) == 2
    assert "no command 'trian'" in capsys.readouterr().err


def test_a_gallery_that_would_replace_a_folder_is_refused_at_once(
        tmp_path, capsys):
    assert main(['embed', 'none.py', 'none.pth', str(tmp_path / 'none'),
                 '--out', str(tmp_path)]) == 1
    assert 'is a folder' in capsys.readouterr().err
