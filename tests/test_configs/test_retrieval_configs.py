from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.hooks import Hook
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from mmengine.runner import Runner

from mmrank.datasets.readers import RetrievalDataset
from mmrank.registry import DATASETS, HOOKS, MODELS
from tests.test_datasets.trees import make_tree

ROOT = Path(__file__).resolve().parents[2] / 'configs'
CONFIGS = sorted(
    str(path.relative_to(ROOT)) for folder, pattern in (
        ('proxy_anchor', '*.py'), ('proxy_isa', '*.py'),
        ('rambo', 'rambo-recall*.py'))
    for path in (ROOT / folder).glob(pattern)
    if 'folder' not in path.name)
SETS = {'cub200': 'cub', 'cars196': 'cars', 'sop': 'sop', 'inshop': 'inshop'}
# published training classes
CLASSES = dict(cub200=100, cars196=98, sop=11318, inshop=3997, glyphs=688)


@pytest.fixture(scope='module')
def trees(tmp_path_factory):
    root = tmp_path_factory.mktemp('trees')
    return {name: make_tree(kind, root / name, per_class=4)
            for name, kind in SETS.items()}


def data_set_of(config):
    return next(name for name in CLASSES if name in config)


def miniature(config, trees):
    """The config with a thin network, a small batch and a small tree."""
    cfg = Config.fromfile(ROOT / config)
    name = data_set_of(config)
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False, batch_size=8)
        if name in trees:
            loader.dataset.data_root = trees[name]
        else:
            loader.dataset.num_classes = 12
    if cfg.train_dataloader.get('batch_sampler', {}).get(
            'samples_per_class') == 8:
        cfg.train_dataloader.batch_size = 16
    if 'ResNet' in cfg.model.backbone.type:
        cfg.model.backbone.update(base_channels=4, init_cfg=None)
        cfg.model.head.in_channels = 128
    return cfg


@pytest.mark.parametrize('config', CONFIGS)
def test_every_config_builds_steps_and_evaluates(config, trees):
    if 'rambo' in config and not MODELS.get('mmrank.RaMBORecallLoss'):
        pytest.skip('RaMBORecallLoss is not there')
    if 'proxy-nca' in config:
        pytest.importorskip('pytorch_metric_learning')
    cfg = miniature(config, trees)
    if 'ResNet' in cfg.model.backbone.type:
        pytest.importorskip('mmdet')
    init_default_scope(cfg.default_scope)
    for hook in cfg.custom_hooks:
        assert isinstance(HOOKS.build(dict(hook)), Hook)
    model = MODELS.build(cfg.model)
    if hasattr(model.head.loss_module, 'set_epoch'):
        model.head.loss_module.set_epoch(3)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper)
    before = [p.detach().clone() for p in model.parameters()]
    batch = next(iter(Runner.build_dataloader(cfg.train_dataloader, seed=0)))
    logs = model.train_step(batch, optimizer)
    assert logs['loss'].isfinite()
    frozen = {id(p) for group in optimizer.param_groups
              for p in group['params'] if group['lr'] == 0}
    changed = [torch.equal(p, b) == (id(p) in frozen)
               for p, b in zip(model.parameters(), before)]
    assert all(changed) or 'rambo' in config and any(changed)

    loader = Runner.build_dataloader(cfg.val_dataloader, seed=0)
    evaluator = Evaluator(cfg.val_evaluator)
    for batch in loader:
        evaluator.process(model.val_step(batch), batch)
    found = evaluator.evaluate(len(loader.dataset))
    assert 0 <= found['retrieval/R@1'] <= 1
    assert [f'retrieval/R@{k}' for k in cfg.val_evaluator.ks] == [
        name for name in found if '/R@' in name]


@pytest.mark.parametrize('config', CONFIGS)
def test_configs_state_the_published_settings(config):
    cfg = Config.fromfile(ROOT / config)
    name = data_set_of(config)
    data = DATASETS.get(cfg.train_dataloader.dataset.type)
    assert issubclass(data, RetrievalDataset)
    if 'rambo' not in config:
        assert cfg.model.head.num_classes == CLASSES[name]
    if name != 'glyphs':
        assert cfg.model.head.num_classes == data.published['train'][
            1] if 'rambo' not in config else True
        assert tuple(cfg.val_evaluator.ks) == dict(
            sop=(1, 10, 100, 1000), inshop=(1, 10, 20, 30, 40, 50)).get(
                name, (1, 2, 4, 8))
    assert cfg.default_scope == 'mmrank'


def test_proxies_learn_a_hundred_times_as_fast_and_nothing_else_does(trees):
    cfg = miniature('proxy_anchor/proxy-anchor_r50_cub200.py', trees)
    pytest.importorskip('mmdet')
    init_default_scope('mmrank')
    model = MODELS.build(cfg.model)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    fast = [group for group in optimizer.param_groups if group['lr'] > 1e-3]
    assert len(fast) == 1 and fast[0]['lr'] == pytest.approx(1e-2)
    assert fast[0]['params'][0] is model.head.proxies


def test_glyph_configs_count_the_training_classes():
    from mmrank.datasets.generators.glyphs import characters_of
    assert len(characters_of('train')) == CLASSES['glyphs']


@pytest.mark.parametrize('name', ['cub200', 'cars196'])
def test_proxy_isa_keeps_batch_norm_as_it_was(name, trees):
    pytest.importorskip('mmdet')
    cfg = miniature(f'proxy_isa/proxy-isa_r50_{name}.py', trees)
    assert cfg.train_cfg.max_epochs == 100
    assert cfg.default_hooks.checkpoint.save_best == 'retrieval/MAP@R'
    init_default_scope('mmrank')
    model = MODELS.build(cfg.model)
    optimizer = build_optim_wrapper(model, cfg.optim_wrapper).optimizer
    assert type(optimizer) is torch.optim.Adam
    rates = {id(p): group['lr'] for group in optimizer.param_groups
             for p in group['params']}
    norms = {id(p) for layer in model.backbone.modules()
             if isinstance(layer, torch.nn.BatchNorm2d)
             for p in layer.parameters()}
    assert len(norms) == 106
    for key, rate in rates.items():
        assert (rate == 0) == (key in norms)


@pytest.mark.parametrize('name, batches', [('sop', 660), ('inshop', 1012)])
def test_an_epoch_of_super_labels_is_as_long_as_the_papers(name, batches):
    cfg = Config.fromfile(ROOT / f'rambo/rambo-recall_r50_loglog_{name}.py')
    assert cfg.train_dataloader.batch_sampler.num_batches == batches
