# three minutes on two cores: a narrow L2Net, batches of 128 pairs
_base_ = [
    '../_base_/models/l2net_adasample.py',
    '../_base_/datasets/photo_patches.py',
    '../_base_/descriptor_runtime.py',
]
model = dict(
    backbone=dict(widths=(16, 32, 64)),
    sampler=dict(mode='bank'))
# 10 / 1024 * 128 would be 1.25; a short run bears more
optim_wrapper = dict(optimizer=dict(type='SGD', lr=1.25, momentum=0.5, weight_decay=1e-4))
param_scheduler = [dict(type='LinearLR', start_factor=1.0, end_factor=0.01, begin=0, end=20, by_epoch=True, convert_to_iter_based=True)]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=20, val_interval=20)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
custom_hooks = [dict(type='mmrank.DescriptorBankHook', interval=2)]
default_hooks = dict(logger=dict(interval=20), checkpoint=dict(interval=5))
