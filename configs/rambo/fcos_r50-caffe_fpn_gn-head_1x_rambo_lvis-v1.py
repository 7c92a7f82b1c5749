# FCOS on LVIS v1: 1203 classes, rare ones repeated, 300 detections an image.
# The loss's parameters are the paper's for Pascal VOC, the schedule and the
# learning rate are the detector's own; nothing here is tuned on LVIS.
# Of the memory, 10 negatives a class: up to 12 030 rows a batch, 58 MB.
_base_ = './fcos_r50-caffe_fpn_gn-head_1x_rambo_coco.py'
model = dict(
    bbox_head=dict(num_classes=1203, loss_cls=dict(memory_negatives=10)),
    test_cfg=dict(max_per_img=300))
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
