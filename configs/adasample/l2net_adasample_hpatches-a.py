# trained and tested on HPatches split a ("-HP" in Fig. 2); no fill: a class
# has 16 patches
_base_ = [
    '../_base_/models/l2net_adasample.py',
    '../_base_/datasets/hpatches.py',
    '../_base_/schedules/descriptor_90e.py',
    '../_base_/descriptor_runtime.py',
]
model = dict(symmetries=True)
batch_size = 1024
data_root = 'data/hpatches-release/'
train_dataloader = dict(
    batch_size=batch_size,
    num_workers=4,
    persistent_workers=True,
    drop_last=True,
    sampler=dict(type='mmrank.DistinctClassSampler', batch_size=batch_size, num_samples=1000000),
    collate_fn=dict(type='pseudo_collate'),
    dataset=dict(
        type='mmrank.HPatchesDataset',
        data_root=data_root,
        split='a',
        splits_file='data/hpatches-benchmark/python/utils/splits.json'))
val_dataloader = {{_base_.test_dataloader}}
val_evaluator = {{_base_.test_evaluator}}
train_cfg = dict(val_interval=30)
