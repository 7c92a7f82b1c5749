# DigitsOnPhotos, made by tools/dataset_converters/digits_on_photos.py.
# Unlike MMDetection's VOC base: no box is ignored for its size (the digits
# are 16 to 44 px, its bbox_min_size is 32), the set is not repeated, and AP
# is the area under the curve rather than the 11-point mean of VOC 2007.
dataset_type = 'VOCDataset'
data_root = 'data/digits_on_photos/'
metainfo = dict(
    classes=('zero', 'one', 'two', 'three', 'four', 'five', 'six', 'seven',
             'eight', 'nine'),
    palette=[(230, 25, 75), (60, 180, 75), (255, 225, 25), (0, 130, 200),
             (245, 130, 48), (145, 30, 180), (70, 240, 240), (240, 50, 230),
             (210, 245, 60), (250, 190, 212)])

# no flip: a mirrored digit is another sign
train_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='LoadAnnotations', with_bbox=True),
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    dict(type='PhotoMetricDistortion'),
    dict(type='PackDetInputs'),
]
test_pipeline = [
    dict(type='LoadImageFromFile'),
    dict(type='Resize', scale=(128, 128), keep_ratio=True),
    # after the resizing: boxes are compared in the image's own pixels
    dict(type='LoadAnnotations', with_bbox=True),
    dict(
        type='PackDetInputs',
        meta_keys=('img_id', 'img_path', 'ori_shape', 'img_shape',
                   'scale_factor')),
]

train_dataloader = dict(
    batch_size=8,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='VOC2007/ImageSets/Main/train.txt',
        data_prefix=dict(sub_data_root='VOC2007/'),
        filter_cfg=dict(filter_empty_gt=True),
        pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=16,
    num_workers=1,
    persistent_workers=True,
    drop_last=False,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(
        type=dataset_type,
        data_root=data_root,
        metainfo=metainfo,
        ann_file='VOC2007/ImageSets/Main/val.txt',
        data_prefix=dict(sub_data_root='VOC2007/'),
        test_mode=True,
        pipeline=test_pipeline))
test_dataloader = dict(
    val_dataloader,
    dataset=dict(
        val_dataloader['dataset'],
        ann_file='VOC2007/ImageSets/Main/test.txt'))

val_evaluator = dict(
    type='mmrank.VOCPrecisionRecallMetric', eval_mode='area')
test_evaluator = val_evaluator
