# Your own images, a folder a class. Tell, in a config that inherits this one
# or by --cfg-options: the three data_root, and model.head.num_classes.
_base_ = '../_base_/retrieval_runtime.py'

load = dict(type='mmrank.LoadImage')
pack = dict(type='mmrank.PackRetrievalInputs')
train_pipeline = [
    load,
    dict(
        type='mmrank.ImageTransforms',
        transforms=[
            dict(type='RandomResizedCrop', size=128, scale=(0.4, 1.0)),
            dict(type='RandomHorizontalFlip'),
        ]),
    pack,
]
test_pipeline = [
    load,
    dict(
        type='mmrank.ImageTransforms',
        transforms=[dict(type='Resize', size=146), dict(type='CenterCrop', size=128)]),
    pack,
]

train_dataloader = dict(
    batch_size=32,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(type='mmrank.FolderRetrievalDataset', data_root='data/my_images/train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=32,
    num_workers=2,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type='mmrank.FolderRetrievalDataset', data_root='data/my_images/val', pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmrank.RetrievalMetric', ks=(1, 5))
test_evaluator = val_evaluator

model = dict(
    type='mmrank.MetricLearner',
    data_preprocessor=dict(
        type='mmengine.ImgDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375]),
    backbone=dict(type='mmrank.TimmBackbone', model_name='resnet18', pretrained=True),
    head=dict(
        type='mmrank.MetricLearningHead',
        in_channels=512,
        embedding_size=128,
        num_classes=100,
        loss=dict(type='mmrank.ProxyAnchorLoss', margin=0.1, alpha=32.)))

# the proxies learn 100 times as fast, as the authors let them
optim_wrapper = dict(
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=1e-4),
    clip_grad=dict(type='value', clip_value=10.),
    paramwise_cfg=dict(custom_keys={'head.proxies': dict(lr_mult=100, decay_mult=0)}))
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=20, val_interval=5)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
default_hooks = dict(
    logger=dict(interval=10),
    checkpoint=dict(interval=5))
