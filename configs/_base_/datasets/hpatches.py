data_root = 'data/hpatches-release/'
benchmark = 'data/hpatches-benchmark/'
splits_file = benchmark + 'python/utils/splits.json'
tasks_dir = benchmark + 'tasks'
test_dataloader = dict(
    batch_size=1,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='mmrank.HPatchesDataset',
        data_root=data_root,
        split='a',
        test_mode=True,
        splits_file=splits_file,
        tasks_dir=tasks_dir))
test_evaluator = dict(type='mmrank.HPatchesMetric')
