"""One block swaps the loss of a config of MMDetection's own."""

import pytest

pytest.importorskip('mmdet')

from mmengine.config import Config
from mmengine.runner import Runner

from .coco_tree import make_coco_tree
from .test_rambo_configs import logged, miniature

USER_CONFIG = """
_base_ = 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'
model = dict(
    roi_head=dict(
        bbox_head=dict(
            loss_cls=dict(
                _delete_=True, type='mmrank.RaMBOLoss', memory_batches=7,
                margin=0.15, lambda_val=0.5))),
    test_cfg=dict(rcnn=dict(score_thr=0.0)))
"""


def user_config(folder, categories=None):
    from mmdet.datasets import CocoDataset
    classes = CocoDataset.METAINFO['classes']
    root = make_coco_tree(
        folder / 'coco', categories or list(enumerate(classes, 1)))
    (folder / 'mine.py').write_text(USER_CONFIG)
    cfg = miniature(Config.fromfile(folder / 'mine.py'), folder / 'w', root)
    annotations = f'{root}/annotations/instances_val2017.json'
    cfg.val_evaluator.ann_file = cfg.test_evaluator.ann_file = annotations
    return cfg


def test_an_unchanged_mmdet_config_trains_and_predicts_with_the_loss(
        tmp_path):
    cfg = user_config(tmp_path)
    cfg.default_hooks.logger.interval = 1
    runner = Runner.from_cfg(cfg)
    runner.train()
    assert runner.iter == 2
    assert 'val/coco/bbox_mAP' in runner.message_hub.log_scalars
    steps = [s for s in logged(tmp_path / 'w') if 'loss_cls' in s]
    assert len(steps) == 2
    head = runner.model.roi_head.bbox_head
    assert head.fc_cls.out_features == 80  # no column for the background


def test_a_misspelt_coco_class_stops_before_iteration_1(tmp_path):
    from mmdet.datasets import CocoDataset
    categories = list(enumerate(CocoDataset.METAINFO['classes'], 1))
    categories[3] = (4, 'motor cycle')
    cfg = user_config(tmp_path, categories)
    cfg.custom_hooks = [dict(type='mmrank.ClassNamesCheckHook')]
    runner = Runner.from_cfg(cfg)
    with pytest.raises(ValueError, match="'motor cycle'.*write 'motorcycle'"):
        runner.train()
    assert runner.iter == 0
