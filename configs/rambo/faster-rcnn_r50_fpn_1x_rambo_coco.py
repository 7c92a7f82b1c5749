# Faster R-CNN on COCO.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = 'mmdet::faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py'
model = dict(
    roi_head=dict(
        bbox_head=dict(
            type='mmrank.RankShared2FCBBoxHead',
            loss_cls=dict(
                _delete_=True,
                type='mmrank.RaMBOLoss',
                use_sigmoid=True,
                memory_batches=7,
                margin=0.15,
                lambda_val=0.5,
                map_weight=2.0,
                cross_class_weight=1.0,
                loss_weight=1.0))),
    # the scores of a ranking have no fixed scale: none is cut off
    test_cfg=dict(rcnn=dict(score_thr=0.0)))
