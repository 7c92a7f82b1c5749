# Rendered from the fonts inside matplotlib; test classes are others than the
# training classes. Validation is the test split: it selects nothing here.
dataset_type = 'mmrank.GlyphRetrievalDataset'
pipeline = [
    dict(type='mmrank.LoadImage', mode='L'),
    dict(type='mmrank.PackRetrievalInputs'),
]
train_dataloader = dict(
    batch_size=128,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=True),
    batch_sampler=dict(type='mmrank.ClassBalancedBatchSampler', samples_per_class=4),
    dataset=dict(type=dataset_type, split='train', pipeline=pipeline))
val_dataloader = dict(
    batch_size=256,
    num_workers=1,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    dataset=dict(type=dataset_type, split='test', pipeline=pipeline))
test_dataloader = val_dataloader
val_evaluator = dict(type='mmrank.RetrievalMetric', ks=(1, 2, 4, 8))
test_evaluator = val_evaluator
