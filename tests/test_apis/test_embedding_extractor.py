import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from mmrank.apis import EmbeddingExtractor, list_images

CONFIG = """
default_scope = 'mmrank'
model = dict(
    type='mmrank.MetricLearner',
    data_preprocessor=dict(
        type='mmengine.ImgDataPreprocessor',
        mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375],
        bgr_to_rgb=FROM_BGR),
    backbone=dict(type='MeanColour'),
    head=dict(
        type='mmrank.MetricLearningHead', in_channels=8, embedding_size=6,
        num_classes=NUM_CLASSES, loss=dict(type='mmrank.ProxyAnchorLoss')))
test_pipeline = [
    dict(type='LOADER'),
    dict(type='mmrank.PackRetrievalInputs')]
"""


@pytest.fixture(scope='module', autouse=True)
def _backbone():
    """A backbone that needs nothing else."""
    from mmrank.registry import MODELS

    class MeanColour(torch.nn.Sequential):

        def __init__(self):
            super().__init__(
                torch.nn.Conv2d(3, 8, 3, 2), torch.nn.BatchNorm2d(8))

    MODELS.register_module(module=MeanColour, force=True)
    yield
    MODELS.module_dict.pop('MeanColour')


def _text(num_classes=3, loader='mmrank.LoadImage'):
    text = CONFIG.replace('NUM_CLASSES', str(num_classes))
    text = text.replace('FROM_BGR', str(loader != 'mmrank.LoadImage'))
    return text.replace('LOADER', loader)


@pytest.fixture
def config(tmp_path):
    file = tmp_path / 'config.py'
    file.write_text(_text())
    return file


@pytest.fixture
def images(tmp_path):
    """Five files, and the same pixels as arrays in the order of OpenCV."""
    pixels = [
        np.random.default_rng(seed).integers(
            0, 256, size=(40, 50, 3)).astype(np.uint8)
        for seed in range(5)
    ]
    paths = [str(tmp_path / f'{seed}.png') for seed in range(5)]
    for path, array in zip(paths, pixels):
        cv2.imwrite(path, array)
    return paths, pixels


@pytest.fixture
def checkpoint(tmp_path, config):
    torch.manual_seed(1)
    model = EmbeddingExtractor(config, device='cpu').model
    file = tmp_path / 'weights.pth'
    torch.save(dict(state_dict=model.state_dict(), meta=dict(
        dataset_meta=dict(classes=('a', 'b', 'c')))), file)
    return file


def _extractor(config, checkpoint=None):
    return EmbeddingExtractor(config, checkpoint, device='cpu')


@pytest.mark.parametrize('loader', [
    'mmrank.LoadImage', 'mmcv.LoadImageFromFile'])
def test_paths_and_arrays_of_the_same_pixels_embed_equally(
        config, images, loader):
    if loader.startswith('mmcv'):
        pytest.importorskip('mmcv')
    config.write_text(_text(loader=loader))
    paths, pixels = images
    extractor = _extractor(config)
    from_paths = extractor(paths, progress=False)
    assert from_paths.shape == (5, 6)
    assert from_paths.dtype == np.float32
    np.testing.assert_array_equal(
        extractor(pixels, progress=False), from_paths)
    rgb = [array[..., ::-1] for array in pixels]
    np.testing.assert_array_equal(
        extractor(rgb, channel_order='rgb', progress=False), from_paths)
    assert np.abs(extractor(rgb, progress=False) - from_paths).max() > 1e-3


@pytest.mark.parametrize('batch_size, num_workers', [(1, 0), (2, 0), (2, 1)])
def test_batches_and_workers_change_nothing(config, images, batch_size,
                                            num_workers):
    extractor = _extractor(config)
    np.testing.assert_allclose(
        extractor(images[0], batch_size=batch_size, num_workers=num_workers,
                  progress=False),
        extractor(images[0], progress=False), atol=1e-6)


def test_a_single_image_is_a_batch_of_one(config, images):
    paths, pixels = images
    extractor = _extractor(config)
    first = extractor(paths[:1], progress=False)
    np.testing.assert_array_equal(extractor(paths[0], progress=False), first)
    np.testing.assert_array_equal(extractor(pixels[0], progress=False), first)


def test_no_images_give_no_rows_of_the_right_width(config):
    extractor = _extractor(config)
    assert extractor([]).shape == (0, 6)
    assert extractor([]).dtype == np.float32
    assert extractor.embedding_dim == 6


def test_both_loaders_embed_a_file_equally(config, images):
    pytest.importorskip('mmcv')
    ours = _extractor(config)
    config.write_text(_text(loader='mmcv.LoadImageFromFile'))
    theirs = _extractor(config)
    theirs.model.load_state_dict(ours.model.state_dict())
    np.testing.assert_allclose(
        theirs(images[0], progress=False), ours(images[0], progress=False),
        atol=1e-6)


@pytest.mark.parametrize('loader', [
    'mmrank.LoadImage', 'mmcv.LoadImageFromFile'])
def test_a_grey_array_counts_as_three_equal_channels(config, loader):
    if loader.startswith('mmcv'):
        pytest.importorskip('mmcv')
    config.write_text(_text(loader=loader))
    grey = np.arange(900, dtype=np.uint8).reshape(30, 30)
    extractor = _extractor(config)
    np.testing.assert_array_equal(
        extractor([grey], progress=False),
        extractor([np.stack([grey] * 3, -1)], progress=False))


def test_embeds_in_evaluation_mode_and_leaves_the_model_as_it_was(
        config, images):
    extractor = _extractor(config)
    before = {name: value.clone()
              for name, value in extractor.model.state_dict().items()}
    extractor(images[0], progress=False)
    assert not extractor.model.training
    for name, value in extractor.model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_the_progress_bar_keeps_standard_output_clean(config, images, capsys):
    _extractor(config)(images[0], batch_size=2)
    shown = capsys.readouterr()
    assert shown.out == ''
    assert '5/5' in shown.err and 'ETA' in shown.err


def test_a_checkpoint_gives_the_weights_and_the_data_set_meta(
        config, checkpoint, images):
    one, two = (_extractor(config, checkpoint) for _ in range(2))
    np.testing.assert_array_equal(
        one(images[0], progress=False), two(images[0], progress=False))
    assert one.dataset_meta['classes'] == ('a', 'b', 'c')
    assert one.model_id == two.model_id
    with torch.no_grad():
        two.model.head.fc.bias += 1
    assert one.model_id != _extractor(config).model_id


def test_another_number_of_training_classes_is_no_obstacle(
        config, checkpoint, images):
    expected = _extractor(config, checkpoint)(images[0], progress=False)
    config.write_text(_text(num_classes=7))
    np.testing.assert_array_equal(
        _extractor(config, checkpoint)(images[0], progress=False), expected)


def test_pretrained_weights_are_not_fetched_beside_a_checkpoint(tmp_path):
    pytest.importorskip('timm')
    config = Config.fromstring(_text(), '.py')
    config.model.backbone = dict(
        type='mmrank.TimmBackbone', model_name='resnet10t')
    config.model.head.in_channels = 512
    first = EmbeddingExtractor(config, device='cpu')
    torch.save(first.model.state_dict(), tmp_path / 'weights.pth')
    # there is no such download, nor a network in a test
    config.model.backbone.pretrained = True
    config.model.backbone.pretrained_cfg_overlay = dict(
        url='http://127.0.0.1:1/nothing', hf_hub_id=None)
    second = EmbeddingExtractor(config, tmp_path / 'weights.pth', 'cpu')
    assert second.model_id == first.model_id


def test_a_checkpoint_of_another_model_is_refused(config, checkpoint):
    other = Config.fromfile(config)
    other.model.head.embedding_size = 9
    with pytest.raises(ValueError, match=r'does not fit.*head\.fc'):
        _extractor(other, checkpoint)


def test_a_truncated_checkpoint_is_refused_by_name(config, checkpoint):
    checkpoint.write_bytes(checkpoint.read_bytes()[:500])
    with pytest.raises(ValueError, match=r'weights\.pth.*truncated'):
        _extractor(config, checkpoint)


def test_missing_files_are_named(config, images, tmp_path):
    with pytest.raises(FileNotFoundError, match='nowhere'):
        _extractor(config, tmp_path / 'nowhere.pth')
    with pytest.raises(FileNotFoundError, match='nowhere'):
        _extractor(tmp_path / 'nowhere.py')
    with pytest.raises(FileNotFoundError, match='nowhere'):
        _extractor(config)([images[0][0], tmp_path / 'nowhere.png'])
    with pytest.raises(FileNotFoundError, match='nowhere'):
        list_images(tmp_path / 'nowhere')


@pytest.mark.parametrize('content, num_workers', [
    (b'', 0), (b'no image', 0), (b'\x89PNG\r\n\x1a\n', 0), (b'', 1)])
def test_an_unreadable_image_is_named(config, images, tmp_path, content,
                                      num_workers):
    broken = tmp_path / 'broken.png'
    broken.write_bytes(content)
    with pytest.raises(ValueError, match=r'broken\.png.*cannot be read'):
        _extractor(config)([images[0][0], broken], num_workers=num_workers,
                           progress=False)


@pytest.mark.parametrize('image', [
    np.zeros((4, 4, 3), np.float32), np.zeros((4, 4, 4), np.uint8),
    np.zeros((0, 4, 3), np.uint8), np.zeros(4, np.uint8), 3])
def test_what_is_no_image_is_refused_by_its_index(config, image):
    good = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(ValueError, match='image 1 '):
        _extractor(config)([good, image], progress=False)


def test_a_config_without_a_test_pipeline_is_refused(config):
    changed = Config.fromfile(config)
    pipeline = changed.pop('test_pipeline')
    with pytest.raises(ValueError, match='no test pipeline'):
        _extractor(changed)
    changed.test_dataloader = dict(
        dataset=dict(type='RepeatDataset', dataset=dict(pipeline=pipeline)))
    assert _extractor(changed).embedding_dim == 6


def test_images_are_listed_sorted_with_subfolders(tmp_path):
    for name in ('b/2.JPG', 'a/1.png', 'notes.txt', '.hidden/3.png'):
        file = tmp_path / 'folder' / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b'')
    found = list_images(tmp_path / 'folder')
    assert [path[len(str(tmp_path)):] for path in found] == [
        '/folder/a/1.png', '/folder/b/2.JPG']
