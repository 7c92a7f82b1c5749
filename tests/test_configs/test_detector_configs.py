"""The ranking configs for COCO and LVIS, and the paper's ablations."""

import copy
from pathlib import Path

import pytest
import torch

pytest.importorskip('mmdet')

from mmdet.registry import DATASETS, METRICS
from mmengine.config import Config
from mmengine.dataset import pseudo_collate

from ..tiny_detectors import build, make_batch, predict, step, tiny
from .coco_tree import add_lvis, make_coco_tree
from .test_rambo_configs import walk

CONFIGS = Path(__file__).parents[2] / 'configs' / 'rambo'
COCO = sorted(path.stem for path in CONFIGS.glob('*_coco.py'))
LVIS = sorted(path.stem for path in CONFIGS.glob('*_lvis-v1.py'))
TABLE8 = sorted(path.stem for path in CONFIGS.glob('*_voc07_*.py'))


def load(name):
    return Config.fromfile(CONFIGS / f'{name}.py')


def tiny_model(cfg):
    model = cfg.model
    return build(tiny(model, width=256 if model.type == 'DINO' else 32))


@pytest.mark.parametrize('name', COCO + LVIS + TABLE8)
def test_config_trains_for_two_steps_and_predicts(name):
    cfg = load(name)
    classes = 80 if name in COCO else 1203 if name in LVIS else 20
    detector = tiny_model(cfg)
    optimizer = torch.optim.SGD(detector.parameters(), lr=1e-3)
    for seed in range(2):
        logged = step(detector, make_batch([3, 2], classes, seed=seed),
                      optimizer)
        assert 0 < logged['loss_cls'] <= 1
        assert torch.tensor(logged['loss']).isfinite()
    for sample in predict(detector, make_batch([3, 2], classes)):
        found = sample.pred_instances
        assert len(found) > 0 and (found.labels < classes).all()


def test_the_promised_detectors_have_a_config_for_both_sets():
    for detector in ('faster-rcnn', 'retinanet', 'atss', 'fcos',
                     'deformable-detr'):
        for names in (COCO, LVIS):
            assert any(name.startswith(detector) for name in names)


@pytest.mark.parametrize('name', COCO + LVIS)
def test_only_loss_head_type_and_threshold_differ_from_mmdet(name):
    if 'finetune' in name:
        return
    cfg = load(name)
    coco = name.replace('_rambo_lvis-v1', '_coco').replace(
        '_rambo_coco', '_coco').replace('_rambo-rpn_coco', '_coco')
    folder = {'faster-rcnn': 'faster_rcnn', 'deformable-detr':
              'deformable_detr'}.get(name.split('_')[0], name.split('_')[0])
    import mmdet
    theirs = Config.fromfile(
        Path(mmdet.__file__).parent / '.mim' / 'configs' / folder /
        f'{coco}.py')

    def neutral(cfg):
        model = copy.deepcopy(cfg.model)
        for head in (model.get('bbox_head'), model.get('rpn_head'),
                     model.get('roi_head', {}).get('bbox_head')):
            if head is not None:
                head.loss_cls = None
                head.num_classes = head.type = None
        test = model.test_cfg.get('rcnn', model.test_cfg)
        test.score_thr = test.max_per_img = None
        model.pop('_scope_', None)  # of a config that mmdet:: names
        return model.to_dict()

    assert neutral(cfg) == neutral(theirs)
    for key in ('optim_wrapper', 'param_scheduler'):
        assert str(cfg[key]).replace("'_scope_': 'mmdet'", '').replace(
            ', }', '}') == str(theirs[key])


@pytest.mark.parametrize('name', TABLE8)
def test_an_ablation_changes_one_parameter_of_the_paper_s_config(name):
    ours, paper = load(name), load('faster-rcnn_r50_fpn_rambo_voc07')
    loss = ours.model.roi_head.bbox_head.loss_cls
    base = paper.model.roi_head.bbox_head.loss_cls
    changed = {key: loss[key] for key in base if loss[key] != base[key]}
    assert changed == {
        'faster-rcnn_r50_fpn_rambo_voc07_lambda0.1': dict(lambda_val=0.1),
        'faster-rcnn_r50_fpn_rambo_voc07_lambda2.5': dict(lambda_val=2.5),
        'faster-rcnn_r50_fpn_rambo_voc07_lambda0.5-no-margin':
        dict(margin=0.0),
    }[name]
    ours.model.roi_head.bbox_head.loss_cls = base
    assert ours._cfg_dict == paper._cfg_dict


def test_fine_tuning_starts_from_cross_entropy_s_checkpoint():
    cfg = load('faster-rcnn_r50_fpn_1x_rambo-finetune_coco')
    assert 'faster_rcnn_r50_fpn_1x_coco' in cfg.load_from
    assert cfg.model.backbone.init_cfg is None
    usual = load('faster-rcnn_r50_fpn_1x_rambo_coco')
    assert cfg.optim_wrapper.optimizer.lr < usual.optim_wrapper.optimizer.lr
    assert cfg.param_scheduler[-1].end == cfg.train_cfg.max_epochs


# -- the data, from a miniature tree --------------------------------------

@pytest.fixture(scope='module')
def coco_tree(tmp_path_factory):
    from mmdet.datasets import CocoDataset, LVISV1Dataset
    root = make_coco_tree(tmp_path_factory.mktemp('data') / 'coco',
                          enumerate(CocoDataset.METAINFO['classes'], 1))
    add_lvis(root, enumerate(LVISV1Dataset.METAINFO['classes'], 1))
    return root


def dataset(config, root):
    config = copy.deepcopy(config)
    for node in walk(config):
        if 'data_root' in node:
            node['data_root'] = f'{root}/'
        if node.get('type') == 'Resize':
            node['scale'] = (64, 64)
        if 'scales' in node:
            node['scales'] = [(64, 64)]
        if 'crop_size' in node:
            node['crop_size'] = (32, 48)
    return DATASETS.build(config)


@pytest.mark.parametrize('name', COCO + LVIS)
def test_the_data_of_a_config_are_read_and_stepped(name, coco_tree):
    cfg = load(name)
    detector = tiny_model(cfg)  # registers mmdet's parts
    if name in LVIS:
        pytest.importorskip('lvis', reason='LVIS needs the package lvis')
    data = dataset(cfg.train_dataloader.dataset, coco_tree)
    assert len(data) == 4
    batch = pseudo_collate([data[0], data[1]])
    assert len(batch['data_samples'][0].gt_instances) == 2
    assert torch.tensor(step(detector, batch)['loss']).isfinite()
    data = dataset(cfg.val_dataloader.dataset, coco_tree)
    predict(detector, pseudo_collate([data[0], data[1]]))


@pytest.mark.parametrize('name', LVIS)
def test_lvis_boxes_are_measured_as_lvis_does(name):
    cfg = load(name)
    tiny_model(cfg)
    for part in ('val', 'test'):
        evaluator = cfg[f'{part}_evaluator']
        assert METRICS.get(evaluator.type).__name__ == 'LVISMetric'
        assert evaluator.metric == 'bbox'
        assert evaluator.ann_file.endswith('lvis_v1_val.json')
        assert cfg[f'{part}_dataloader'].dataset.type == 'LVISV1Dataset'
