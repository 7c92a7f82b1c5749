# Fine-tunes a Faster R-CNN that was trained with cross-entropy.
#
# All names of mmdet's checkpoint fit. Its classifier has a row for the
# background, this one has none: on loading the row is subtracted from the
# others, so training starts from the log-odds against the background. Any
# checkpoint of the cross-entropy config does:
#   --cfg-options load_from=work_dirs/.../epoch_12.pth
_base_ = './faster-rcnn_r50_fpn_1x_rambo_coco.py'
load_from = (
    'https://download.openmmlab.com/mmdetection/v2.0/faster_rcnn/'
    'faster_rcnn_r50_fpn_1x_coco/'
    'faster_rcnn_r50_fpn_1x_coco_20200130-047c8118.pth')
model = dict(backbone=dict(init_cfg=None))  # comes with the checkpoint
train_cfg = dict(max_epochs=4)
optim_wrapper = dict(optimizer=dict(lr=0.01))
param_scheduler = [
    dict(
        type='LinearLR', start_factor=0.1, by_epoch=False, begin=0, end=500),
    dict(
        type='MultiStepLR',
        by_epoch=True,
        begin=0,
        end=4,
        milestones=[3],
        gamma=0.1),
]
