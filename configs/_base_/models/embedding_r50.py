# ResNet-50 of mmdet with torchvision's weights; images are RGB.
model = dict(
    type='mmrank.MetricLearner',
    data_preprocessor=dict(
        type='mmengine.ImgDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375]),
    backbone=dict(
        type='mmdet.ResNet',
        depth=50,
        out_indices=(3, ),
        norm_eval=False,
        init_cfg=dict(type='Pretrained', checkpoint='torchvision://resnet50')),
    head=dict(
        type='mmrank.MetricLearningHead',
        in_channels=2048,
        embedding_size=512,
        pooling='avg+max'))
