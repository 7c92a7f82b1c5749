# Deformable DETR on COCO: one ranking and one memory a decoder layer.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = ['mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py', '../_base_/losses/rambo.py']
model = dict(
    bbox_head=dict(
        type='mmrank.RankDeformableDETRHead',
        loss_cls=dict(
            _delete_=True,
            **_base_.rambo,
            use_sigmoid=True,
            memory_batches=7)))
