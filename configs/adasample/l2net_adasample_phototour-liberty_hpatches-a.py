# trained on liberty, tested on HPatches split a ("Lib" in Fig. 2)
_base_ = 'l2net_adasample_phototour-liberty.py'
benchmark = 'data/hpatches-benchmark/'
test_dataloader = dict(
    _delete_=True,
    batch_size=1,
    num_workers=4,
    sampler=dict(type='DefaultSampler', shuffle=False),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='mmrank.HPatchesDataset',
        data_root='data/hpatches-release/',
        split='a',
        test_mode=True,
        splits_file=benchmark + 'python/utils/splits.json',
        tasks_dir=benchmark + 'tasks'))
test_evaluator = dict(_delete_=True, type='mmrank.HPatchesMetric')
