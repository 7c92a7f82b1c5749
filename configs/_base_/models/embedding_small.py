model = dict(
    type='mmrank.MetricLearner',
    data_preprocessor=dict(type='mmengine.ImgDataPreprocessor', mean=[190.], std=[60.]),
    backbone=dict(type='mmrank.SmallConvNet', in_channels=1, widths=(16, 32, 64, 128)),
    head=dict(
        type='mmrank.MetricLearningHead',
        in_channels=128,
        embedding_size=128,
        pooling='avg+max'))
