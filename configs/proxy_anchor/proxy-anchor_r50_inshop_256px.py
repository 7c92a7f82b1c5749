_base_ = './proxy-anchor_r50_inshop.py'
train_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms', transforms=[dict(type='RandomResizedCrop', size=256), dict(type='RandomHorizontalFlip')]),
    dict(type='mmrank.PackRetrievalInputs'),
]
test_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms', transforms=[dict(type='Resize', size=292), dict(type='CenterCrop', size=256)]),
    dict(type='mmrank.PackRetrievalInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=test_pipeline))
test_dataloader = val_dataloader
