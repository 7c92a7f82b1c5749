# tools/dataset_converters/photo_patches.py writes this data set
data_root = 'data/photo_patches/'
batch_size = 128
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=0,
    drop_last=True,
    sampler=dict(type='mmrank.DistinctClassSampler', batch_size=batch_size, num_samples=2560),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(type='mmrank.PhotoTourDataset', data_root=data_root + 'phototour', scene='photos_train'))
val_dataloader = dict(
    batch_size=500,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(type='mmrank.PhotoTourDataset', data_root=data_root + 'phototour', scene='photos_test', test_mode=True))
val_evaluator = dict(type='mmrank.PatchVerificationMetric')
test_dataloader = dict(
    batch_size=1,
    num_workers=0,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(type='mmrank.HPatchesDataset', data_root=data_root + 'hpatches', split='a', test_mode=True))
test_evaluator = dict(type='mmrank.HPatchesMetric')
