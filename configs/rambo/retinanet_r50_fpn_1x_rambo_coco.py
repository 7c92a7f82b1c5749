# RetinaNet on COCO: one ranking over all pyramid levels.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = ['mmdet::retinanet/retinanet_r50_fpn_1x_coco.py', '../_base_/losses/rambo_dense.py']
model = dict(
    bbox_head=dict(
        type='mmrank.RankRetinaHead',
        loss_cls=dict(_delete_=True, **_base_.rambo_dense)),
    # the scores of a ranking have no fixed scale: none is cut off
    test_cfg=dict(score_thr=0.0))
