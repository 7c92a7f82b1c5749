# Deformable DETR on LVIS v1: 1203 classes, rare ones repeated, 300 detections an image.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on LVIS.
_base_ = './deformable-detr_r50_16xb2-50e_rambo_coco.py'
model = dict(
    bbox_head=dict(num_classes=1203), test_cfg=dict(max_per_img=300))
train_dataloader = dict(
    dataset=dict(
        _delete_=True,
        type='ClassBalancedDataset',
        oversample_thr=1e-3,
        dataset=dict(
            type='LVISV1Dataset',
            data_root='data/lvis_v1/',
            ann_file='annotations/lvis_v1_train.json',
            data_prefix=dict(img=''),
            filter_cfg=dict(filter_empty_gt=True, min_size=32),
            pipeline=_base_.train_pipeline)))
val_dataloader = dict(
    dataset=dict(
        type='LVISV1Dataset',
        data_root='data/lvis_v1/',
        ann_file='annotations/lvis_v1_val.json',
        data_prefix=dict(img='')))
test_dataloader = val_dataloader
val_evaluator = dict(
    type='LVISMetric', ann_file='data/lvis_v1/annotations/lvis_v1_val.json')
test_evaluator = val_evaluator
