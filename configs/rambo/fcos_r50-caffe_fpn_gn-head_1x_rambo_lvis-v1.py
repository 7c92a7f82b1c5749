# FCOS on LVIS v1: 1203 classes, rare ones repeated, 300 detections an image.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on LVIS.
# Of the memory, 10 negatives a class: up to 12 030 rows a batch, 58 MB.
_base_ = ['./fcos_r50-caffe_fpn_gn-head_1x_rambo_coco.py', '../_base_/datasets/lvis_v1.py']
model = dict(
    bbox_head=dict(num_classes=1203, loss_cls=dict(memory_negatives=10)),
    test_cfg=dict(max_per_img=300))
train_dataloader = dict(dataset=dict(
    **_base_.lvis_v1.repeats,
    dataset=dict(**_base_.lvis_v1.train, pipeline=_base_.train_pipeline)))
val_dataloader = test_dataloader = dict(dataset=_base_.lvis_v1.val)
val_evaluator = test_evaluator = _base_.lvis_v1.evaluator
