"""Every AdaSample config builds, takes a step and evaluates in miniature."""

from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.runner import Runner

from mmrank.datasets.generators.photo_patches import write_tasks
from mmrank.registry import DATASETS, METRICS, MODELS
from tests.test_datasets.test_patches import write_scene, write_sequences

ROOT = Path(__file__).resolve().parents[2] / 'configs/adasample'
CONFIGS = sorted(path.name for path in ROOT.glob('*.py'))
SCENES = ('liberty', 'notredame', 'yosemite', 'photos_train', 'photos_test')


@pytest.fixture(scope='module')
def trees(tmp_path_factory):
    """One miniature tree of each kind, in the exact format."""
    root = tmp_path_factory.mktemp('trees')
    ids = np.repeat(np.arange(6) * 11, 3)
    for scene in SCENES:
        write_scene(root / 'scenes' / scene, ids, [(0, 1), (3, 4), (0, 9)])
    release = root / 'release'
    write_sequences(release, dict(i_a=5, v_b=6, v_c=4))
    (release / 'tasks').mkdir()
    write_tasks(release / 'tasks', 'a', dict(i_a=5, v_c=4), 30,
                np.random.default_rng(0))
    return root


def miniature(name, trees):
    cfg = Config.fromfile(ROOT / name)
    if cfg.model.backbone.type == 'mmrank.L2Net':
        cfg.model.backbone.widths = (2, 2, 2)
    for key in ('train_dataloader', 'val_dataloader', 'test_dataloader'):
        dataset = cfg[key].dataset
        scenes = dataset.type == 'mmrank.PhotoTourDataset'
        dataset.data_root = str(trees / ('scenes' if scenes else 'release'))
        if not scenes:
            dataset.splits_file = dataset.tasks_dir = None
        cfg[key].num_workers = 0
        cfg[key].persistent_workers = False
    cfg.train_dataloader.batch_size = 4
    cfg.train_dataloader.sampler.update(batch_size=4, num_samples=4)
    return cfg


@pytest.mark.parametrize('name', CONFIGS)
def test_config_trains_a_step_and_evaluates(name, trees):
    cfg = miniature(name, trees)
    model = MODELS.build(cfg.model)
    if 'sift' not in name:
        loader = Runner.build_dataloader(cfg.train_dataloader)
        if model.sampler.mode == 'bank':
            slots = loader.dataset.slots
            model.sampler.set_bank(torch.nn.functional.normalize(
                torch.randn(6, slots, 128), dim=2))
        model.train()
        for batch in loader:
            data = model.data_preprocessor(batch, training=True)
            loss = model(**data, mode='loss')['loss']
            loss.backward()
            assert loss.isfinite() and loss.requires_grad
    model.eval()
    for part in ('val', 'test'):
        metric = METRICS.build(cfg[f'{part}_evaluator'])
        evaluator = Evaluator(metric)
        loader = Runner.build_dataloader(cfg[f'{part}_dataloader'])
        evaluator.dataset_meta = loader.dataset.metainfo
        for batch in loader:
            evaluator.process(model.test_step(batch), batch)
        scores = evaluator.evaluate(len(loader.dataset))
        assert scores and all(0 <= v <= 100 for v in scores.values())


@pytest.mark.parametrize('name', [n for n in CONFIGS if 'sift' not in n])
def test_config_keeps_the_papers_settings(name):
    cfg = Config.fromfile(ROOT / name)
    assert 'mmrank.DescriptorCollapseHook' in [
        hook.type for hook in cfg.custom_hooks]
    sampler, loss = cfg.model.sampler, cfg.model.loss
    assert loss.margin == 1
    assert loss.distance == ('euclidean' if '-ht_' in name else 'angular')
    assert sampler.lambda_val == (0 if 'hardnet' in name else float('inf')
                                  if 'hardpos' in name else 10)
    optimizer = cfg.optim_wrapper.optimizer
    assert (optimizer.momentum, optimizer.weight_decay) == (.5, 1e-4)
    batch = cfg.train_dataloader.batch_size
    assert cfg.train_dataloader.sampler.batch_size == batch
    assert optimizer.lr == (3 if 'photo-patches' in name
                            else 10) * batch / 1024
    assert sampler.hard_below == loss.margin
    if 'small' not in name:
        assert batch == 1024 and cfg.train_cfg.max_epochs == 90
        assert cfg.param_scheduler[0].milestones == [30, 60, 80]
        assert cfg.train_dataloader.sampler.num_samples == 10**6
        assert cfg.model.symmetries


@pytest.mark.parametrize('train', SCENES[:3])
def test_phototour_trains_on_one_scene_and_tests_on_the_others(train):
    cfg = Config.fromfile(ROOT / f'l2net_adasample_phototour-{train}.py')
    assert cfg.train_dataloader.dataset.scene == train
    assert cfg.train_dataloader.dataset.fill_by_rotation
    assert {train, cfg.val_dataloader.dataset.scene,
            cfg.test_dataloader.dataset.scene} == set(SCENES[:3])


def test_a_config_runs_through_the_runner_from_training_to_test(
        trees, tmp_path):
    cfg = miniature('l2net-small_adasample_photo-patches.py', trees)
    cfg.work_dir = str(tmp_path)
    cfg.train_cfg.update(max_epochs=2, val_interval=2)
    cfg.log_level = 'ERROR'
    runner = Runner.from_cfg(cfg)
    runner.train()
    scores = runner.test()
    assert 'hpatches/matching' in scores
    assert runner.model.sampler.bank is not None


def test_data_sets_are_registered_by_their_public_names():
    for name in ('PhotoTourDataset', 'HPatchesDataset'):
        assert DATASETS.get(f'mmrank.{name}') is not None
    for name in ('PatchVerificationMetric', 'HPatchesMetric'):
        assert METRICS.get(f'mmrank.{name}') is not None
