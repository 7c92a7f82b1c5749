# VOC 07+12 trainval for training, VOC 07 test for testing. What differs from
# MMDetection's VOC base:
# - every box that is not difficult is an object: its bbox_min_size=32 would
#   ignore those under 32 px of the original image, which are tested;
# - the sets are not repeated (there: 3 times in each of 4 epochs), an epoch
#   is one pass and the schedule has 12 of them;
# - AP50 is reported under both definitions, the 11-point one of the VOC 2007
#   challenge and the area under the curve; they differ by some points.
_base_ = 'mmdet::_base_/datasets/voc0712.py'

filter_cfg = dict(filter_empty_gt=True, min_size=32)
train_dataloader = dict(
    batch_size=8,
    num_workers=4,
    dataset=dict(
        _delete_=True,
        type='ConcatDataset',
        # the year tags of the two differ
        ignore_keys=['dataset_type'],
        datasets=[
            dict(
                type='VOCDataset',
                data_root=_base_.data_root,
                ann_file='VOC2007/ImageSets/Main/trainval.txt',
                data_prefix=dict(sub_data_root='VOC2007/'),
                filter_cfg=filter_cfg,
                pipeline=_base_.train_pipeline),
            dict(
                type='VOCDataset',
                data_root=_base_.data_root,
                ann_file='VOC2012/ImageSets/Main/trainval.txt',
                data_prefix=dict(sub_data_root='VOC2012/'),
                filter_cfg=filter_cfg,
                pipeline=_base_.train_pipeline),
        ]))
val_evaluator = [
    dict(
        type='mmrank.VOCPrecisionRecallMetric',
        eval_mode='area',
        prefix='voc_area'),
    dict(
        type='mmrank.VOCPrecisionRecallMetric',
        eval_mode='11points',
        prefix='voc_11points'),
]
test_evaluator = val_evaluator
