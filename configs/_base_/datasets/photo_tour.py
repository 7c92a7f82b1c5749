data_root = 'data/phototour/'
batch_size = 1024
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='mmrank.DistinctClassSampler', batch_size=batch_size, num_samples=1000000),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='mmrank.PhotoTourDataset',
        data_root=data_root,
        scene='liberty',
        patches_per_class=15,
        fill_by_rotation=True))
val_dataloader = dict(
    batch_size=1024,
    num_workers=4,
    persistent_workers=True,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(type='mmrank.PhotoTourDataset', data_root=data_root, scene='notredame', test_mode=True))
val_evaluator = dict(type='mmrank.PatchVerificationMetric')
test_dataloader = val_dataloader
test_evaluator = val_evaluator
