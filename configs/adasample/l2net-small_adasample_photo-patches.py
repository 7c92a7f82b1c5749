# three to five minutes on two cores: a narrow L2Net, batches of 128 pairs
_base_ = [
    '../_base_/models/l2net_adasample.py',
    '../_base_/datasets/photo_patches.py',
    '../_base_/descriptor_runtime.py',
]
# small chunks: quicker on a CPU, whose caches they fit
model = dict(
    backbone=dict(widths=(16, 32, 64)),
    # hard positives only below the margin: its classes are noisier than the
    # paper's, and collapse a network that tells nothing apart yet
    sampler=dict(mode='bank', chunk_size=256, hard_below=1.0),
    chunk_size=256)
# 3 for 1024 pairs: the paper's 10 is too much here, see docs/deviations.md
optim_wrapper = dict(optimizer=dict(type='SGD', lr=0.375, momentum=0.5, weight_decay=1e-4))
param_scheduler = [dict(type='LinearLR', start_factor=1.0, end_factor=0.01, begin=0, end=16, by_epoch=True, convert_to_iter_based=True)]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=16, val_interval=16)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
custom_hooks = [
    dict(type='mmrank.DescriptorBankHook', interval=2, classes_per_pass=16),
    dict(type='mmrank.DescriptorCollapseHook', interval=20)]
default_hooks = dict(logger=dict(interval=20), checkpoint=dict(interval=4))
