"""Each config on DigitsOnPhotos and VOC loads, builds, trains for a step."""

import copy
import functools
import json
import re
from pathlib import Path

import pytest
import torch

pytest.importorskip('mmdet')

from mmdet.utils import register_all_modules
from mmengine.config import Config
from mmengine.registry import DefaultScope
from mmengine.runner import Runner

from mmrank.datasets.generators.digits_on_photos import (
    DigitsOnPhotosOptions,
    make_digits_on_photos,
)
from mmrank.engine.launch import train

from ..processes import own_scope
from .voc_tree import make_voc_tree, write_image

CONFIGS = Path(__file__).parents[2] / 'configs' / 'rambo'
NAMES = sorted(path.name for path in CONFIGS.glob('*.py')
               if path.stem.endswith(('_voc07', '_voc0712', '_digits')))
BACKBONES = {
    '_r50_': 'torchvision://resnet50',
    '_r101_': 'torchvision://resnet101',
    '_x101-32x4d_': 'open-mmlab://resnext101_32x4d',
}
VOC_NAMES = [name for name in NAMES if 'voc' in name]


@pytest.fixture(autouse=True)
def mmdet_scope():
    register_all_modules(init_default_scope=False)
    with DefaultScope.overwrite_default_scope('mmdet'):
        yield


@pytest.fixture(scope='module')
def trees(tmp_path_factory):
    root = tmp_path_factory.mktemp('data')
    digits = make_digits_on_photos(
        root / 'digits', DigitsOnPhotosOptions(4, 2, 2))
    return dict(digits=digits, voc=make_voc_tree(root / 'voc'))


def walk(node):
    """All dictionaries of a config."""
    if isinstance(node, dict):
        yield node
        node = node.values()
    elif not isinstance(node, (list, tuple)):
        return
    for child in node:
        yield from walk(child)


def miniature(cfg, work_dir, data_root):
    """The same run on tiny images, without downloads, for one iteration."""
    for node in walk(cfg._cfg_dict):
        if 'data_root' in node:
            node['data_root'] = f'{data_root}/'
        if node.get('type') == 'Resize':
            node['scale'] = (64, 64)
        if node.get('type') == 'RandomSampler':
            node['num'] = 32
        if (node.get('init_cfg') or {}).get('type') == 'Pretrained':
            node['init_cfg'] = None
    for loader in ('train', 'val', 'test'):
        cfg[f'{loader}_dataloader'].update(
            num_workers=0, persistent_workers=False, batch_size=2)
    cfg.train_cfg.update(max_epochs=1)
    cfg.default_hooks.checkpoint = None
    cfg.work_dir = str(work_dir)
    # MMEngine keeps the visualizer of a name for the whole process
    cfg.visualizer.name = str(work_dir)
    return cfg


@functools.cache
def _read(name):
    return Config.fromfile(CONFIGS / name)


def read(name):
    return copy.deepcopy(_read(name))


def load(name, trees, work_dir):
    return miniature(
        read(name), work_dir, trees['voc' if 'voc' in name else 'digits'])


def without_evaluation(cfg):
    for part in ('val', 'test'):
        for key in ('cfg', 'dataloader', 'evaluator'):
            cfg[f'{part}_{key}'] = None
    return cfg


def logged(work_dir):
    """The scalars of each iteration."""
    file, = Path(work_dir).rglob('scalars.json')
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.parametrize('name', NAMES)
def test_config_trains_for_a_step(name, trees, tmp_path):
    cfg = without_evaluation(load(name, trees, tmp_path))
    cfg.default_hooks.logger.interval = 1
    runner = Runner.from_cfg(cfg)
    before = {k: v.clone() for k, v in runner.model.named_parameters()}
    runner.train()
    assert runner.iter >= 1
    scalars = logged(tmp_path)[0]
    assert 0 < scalars['loss_cls'] <= 10
    moved = {k for k, v in runner.model.named_parameters()
             if not v.equal(before[k])}
    assert {'roi_head.bbox_head.fc_cls.weight',
            'roi_head.bbox_head.fc_reg.weight',
            'rpn_head.rpn_cls.weight'} <= moved


def twin(loss, trees, work_dir, **changes):
    cfg = without_evaluation(
        load(f'faster-rcnn_r18_fpn_{loss}_digits.py', trees, work_dir))
    cfg.default_hooks.checkpoint = dict(type='CheckpointHook', interval=1)
    cfg.default_hooks.logger.interval = 1
    cfg.merge_from_dict(changes)
    return cfg


@pytest.fixture(scope='module')
def checkpoints(trees, tmp_path_factory):
    """Of each twin, after its only epoch."""
    folder = tmp_path_factory.mktemp('twins')
    register_all_modules(init_default_scope=False)
    for loss in ('ce', 'rambo'):
        with own_scope(), DefaultScope.overwrite_default_scope('mmdet'):
            Runner.from_cfg(twin(loss, trees, folder / loss)).train()
    return {loss: str(folder / loss / 'epoch_1.pth')
            for loss in ('ce', 'rambo')}


def test_a_ranking_run_starts_from_a_cross_entropy_checkpoint(
        checkpoints, trees, tmp_path):
    start = checkpoints['ce']
    runner = Runner.from_cfg(twin(
        'rambo', trees, tmp_path / 'run', load_from=start,
        optim_wrapper=dict(optimizer=dict(lr=0.))))
    runner.train()
    found = runner.model.state_dict()
    saved = torch.load(start, weights_only=False)['state_dict']
    for name, parameter in runner.model.named_parameters():
        value = saved.pop(name)
        if 'fc_cls' in name:  # the log-odds against the background
            value = value[:-1] - value[-1:]
        torch.testing.assert_close(parameter.detach(), value)
    runner.model.load_state_dict(
        torch.load(start, weights_only=False)['state_dict'], strict=True)
    assert set(saved) <= set(found), 'only buffers are left'
    assert logged(tmp_path / 'run')[0]['loss_cls'] > 0


def test_a_cross_entropy_run_starts_from_what_fits_of_a_ranking_checkpoint(
        checkpoints, trees, tmp_path, capsys):
    start = checkpoints['rambo']
    runner = Runner.from_cfg(twin(
        'ce', trees, tmp_path / 'run', load_from=start))
    runner.train()
    assert logged(tmp_path / 'run')[0]['loss_cls'] > 0
    log, = (tmp_path / 'run').rglob('*.log')
    told = '(?s)size mismatch.*fc_cls.weight.*unexpected key.*loss_cls.memory'
    # MMEngine prints it, or logs it
    assert re.search(told, capsys.readouterr().out + log.read_text())
    with pytest.raises(RuntimeError, match=told):
        runner.load_checkpoint(start, strict=True)


@pytest.mark.parametrize('before, after', [('ce', 'rambo'), ('rambo', 'ce')])
def test_a_run_of_another_loss_is_not_resumed(
        before, after, checkpoints, trees, tmp_path):
    config = tmp_path / 'resumed.py'
    twin(after, trees, tmp_path / 'run').dump(config)
    with pytest.raises(ValueError, match='fc_cls.weight has.*load_from'):
        train([str(config), '--resume', checkpoints[before], '--cfg-options',
               'train_cfg.max_epochs=2'])


def test_each_ranking_config_differs_from_its_twin_by_the_loss_alone():
    for name in NAMES:
        if '_rambo_' not in name:
            continue
        ours = read(name)
        twin = read(name.replace('_rambo_', '_ce_'))
        ours.model.roi_head.bbox_head.loss_cls = None
        twin.model.roi_head.bbox_head.loss_cls = None
        # where the scores are cut off, and how fast is learnt
        twin.model.test_cfg.rcnn.score_thr = (
            ours.model.test_cfg.rcnn.score_thr)
        twin.optim_wrapper = ours.optim_wrapper
        # the block of the loss, as the configs inherit it
        ours.pop('rambo')
        assert ours._cfg_dict == twin._cfg_dict, name


@pytest.mark.parametrize(
    'name', [name for name in VOC_NAMES if '_rambo_' in name])
def test_voc_config_states_the_settings_of_the_paper(name):
    cfg = read(name)
    loss = cfg.model.roi_head.bbox_head.loss_cls
    assert (loss.memory_batches, loss.margin, loss.lambda_val) == (
        7, 0.15, 0.5)
    assert loss.map_weight / loss.cross_class_weight == 2
    assert cfg.train_dataloader.batch_size == 8
    assert cfg.optim_wrapper.optimizer.lr == 0.1
    assert cfg.train_cfg.max_epochs == 12
    assert cfg.param_scheduler[-1].milestones == [9]


@pytest.mark.parametrize('name', VOC_NAMES)
def test_voc_recipe_is_the_one_that_the_config_states(name):
    """An epoch is one pass, small boxes count, both kinds of AP."""
    cfg = read(name)
    dataset = cfg.train_dataloader.dataset
    assert dataset.type == (
        'ConcatDataset' if 'voc0712' in name else 'VOCDataset')
    assert not any('bbox_min_size' in node for node in walk(dataset))
    assert {m.eval_mode for m in cfg.test_evaluator} == {'area', '11points'}


@pytest.mark.parametrize('name', VOC_NAMES)
def test_what_voc_numbers_depend_on_is_what_was_chosen(name):
    """Pipeline, sets, repeats, filters, weights and length of the recipe:
    each has made published numbers differ by some points."""
    cfg = read(name)
    dataset = cfg.train_dataloader.dataset
    sets = dataset.get('datasets', [dataset])
    assert [d.ann_file for d in sets] == [
        f'VOC{year}/ImageSets/Main/trainval.txt'
        for year in ((2007, 2012) if 'voc0712' in name else (2007, ))]
    for each in sets:
        assert each.filter_cfg == dict(filter_empty_gt=True, min_size=32)
        assert [t.type for t in each.pipeline] == [
            'LoadImageFromFile', 'LoadAnnotations', 'Resize', 'RandomFlip',
            'PackDetInputs']
        assert each.pipeline[2].scale == (1000, 600)
        assert each.pipeline[2].keep_ratio
        assert each.pipeline[3].prob == 0.5
    assert not any(node.get('type') == 'RepeatDataset'
                   for node in walk(cfg.train_dataloader))
    assert cfg.test_dataloader.dataset.ann_file == (
        'VOC2007/ImageSets/Main/test.txt')
    weights = next(value for key, value in BACKBONES.items() if key in name)
    assert cfg.model.backbone.init_cfg.checkpoint == weights
    assert cfg.train_cfg.max_epochs == 12
    assert cfg.param_scheduler[-1].milestones == [9]


def test_voc0712_concatenates_sets_whose_year_tags_differ(trees, tmp_path):
    cfg = load('faster-rcnn_r50_fpn_ce_voc0712.py', trees, tmp_path)
    loader = Runner.build_dataloader(cfg.train_dataloader)
    assert len(loader.dataset) == 4
    years = {d.metainfo['dataset_type'] for d in loader.dataset.datasets}
    assert years == {'VOC2007', 'VOC2012'}
    assert loader.dataset.metainfo['classes'][14] == 'person'
    assert len(list(loader)) == 2  # the batch sampler reads through it


def test_a_box_under_32_pixels_is_trained_on(trees, tmp_path):
    cfg = load('faster-rcnn_r50_fpn_ce_voc07.py', trees, tmp_path)
    dataset = Runner.build_dataloader(cfg.train_dataloader).dataset
    flags = [i['ignore_flag'] for i in dataset.get_data_info(0)['instances']]
    assert flags == [0, 0, 1]  # only the difficult one is ignored


def test_a_head_with_another_number_of_classes_stops_before_iteration_1(
        trees, tmp_path):
    cfg = without_evaluation(
        load('faster-rcnn_r18_fpn_rambo_digits.py', trees, tmp_path))
    cfg.model.roi_head.bbox_head.num_classes = 80
    runner = Runner.from_cfg(cfg)
    with pytest.raises(AssertionError, match=r'num_classes.*80'):
        runner.train()
    assert runner.iter == 0


def test_a_misspelt_class_stops_before_iteration_1(trees, tmp_path):
    cfg = without_evaluation(
        load('faster-rcnn_r18_fpn_rambo_digits.py', trees, tmp_path))
    dataset = cfg.train_dataloader.dataset
    dataset.metainfo.classes = tuple(
        'thre' if c == 'three' else c for c in dataset.metainfo.classes)
    dataset.data_root = str(tmp_path) + '/'
    write_image(tmp_path / 'VOC2007', '000001', [
        ('three', (5, 5, 25, 40), False), ('one', (30, 5, 50, 40), False)])
    lists = tmp_path / 'VOC2007' / 'ImageSets' / 'Main'
    lists.mkdir(parents=True)
    (lists / 'train.txt').write_text('000001\n')
    runner = Runner.from_cfg(cfg)
    with pytest.raises(ValueError, match=r"'thre'.*'three'"):
        runner.train()
    assert runner.iter == 0
