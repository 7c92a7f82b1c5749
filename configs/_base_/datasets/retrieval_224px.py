# What the retrieval data sets share: crops of 224 px and the loaders. A file
# that inherits this one tells the set's type and root.
train_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms', transforms=[dict(type='RandomResizedCrop', size=224), dict(type='RandomHorizontalFlip')]),
    dict(type='mmrank.PackRetrievalInputs'),
]
test_pipeline = [
    dict(type='mmrank.LoadImage'),
    dict(type='mmrank.ImageTransforms', transforms=[dict(type='Resize', size=256), dict(type='CenterCrop', size=224)]),
    dict(type='mmrank.PackRetrievalInputs'),
]
train_dataloader = dict(
    batch_size=120,
    num_workers=8,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    dataset=dict(split='train', pipeline=train_pipeline))
val_dataloader = dict(
    batch_size=128,
    num_workers=8,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(split='test', pipeline=test_pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmrank.RetrievalMetric', ks=(1, 2, 4, 8))
test_evaluator = val_evaluator
