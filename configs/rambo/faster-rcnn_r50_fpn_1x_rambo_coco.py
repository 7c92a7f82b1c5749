# Faster R-CNN on COCO.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = ['mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py', '../_base_/losses/rambo.py']
model = dict(
    roi_head=dict(
        bbox_head=dict(
            type='mmrank.RankShared2FCBBoxHead',
            loss_cls=dict(
                _delete_=True,
                **_base_.rambo,
                use_sigmoid=True,
                memory_batches=7))),
    # the scores of a ranking have no fixed scale: none is cut off
    test_cfg=dict(rcnn=dict(score_thr=0.0)))
