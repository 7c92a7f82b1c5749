# Deformable DETR on LVIS v1: 1203 classes, rare ones repeated, 300 detections an image.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on LVIS.
_base_ = ['./deformable-detr_r50_16xb2-50e_rambo_coco.py', '../_base_/datasets/lvis_v1.py']
model = dict(
    bbox_head=dict(num_classes=1203), test_cfg=dict(max_per_img=300))
train_dataloader = dict(dataset=dict(
    **_base_.lvis_v1.repeats,
    dataset=dict(**_base_.lvis_v1.train, pipeline=_base_.train_pipeline)))
val_dataloader = test_dataloader = dict(dataset=_base_.lvis_v1.val)
val_evaluator = test_evaluator = _base_.lvis_v1.evaluator
