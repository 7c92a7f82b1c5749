# Deformable DETR on COCO: one ranking and one memory a decoder layer.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on COCO.
_base_ = 'mmdet::deformable_detr/deformable-detr_r50_16xb2-50e_coco.py'
model = dict(
    bbox_head=dict(
        type='mmrank.RankDeformableDETRHead',
        loss_cls=dict(
            _delete_=True,
            type='mmrank.RaMBOLoss',
            use_sigmoid=True,
            memory_batches=7,
            margin=0.15,
            lambda_val=0.5,
            map_weight=2.0,
            cross_class_weight=1.0,
            loss_weight=1.0)))
