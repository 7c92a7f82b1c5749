# Faster R-CNN on COCO whose proposals' objectness is ranked as well.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = './faster-rcnn_r50_fpn_1x_rambo_coco.py'
model = dict(
    rpn_head=dict(
        type='mmrank.RankRPNHead',
        loss_cls=dict(
            _delete_=True,
            **_base_.rambo,
            use_sigmoid=True,
            memory_batches=0)))
