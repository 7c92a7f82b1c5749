# FCOS on COCO: mmdet's head gives the loss all pyramid levels at once.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = ['mmdet::fcos/fcos_r50-caffe_fpn_gn-head_1x_coco.py', '../_base_/losses/rambo_dense.py']
model = dict(
    bbox_head=dict(
        type='mmrank.RankFCOSHead',
        loss_cls=dict(_delete_=True, **_base_.rambo_dense)),
    # the scores of a ranking have no fixed scale: none is cut off
    test_cfg=dict(score_thr=0.0))
