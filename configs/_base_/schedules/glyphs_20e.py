# About two minutes on one core of a CPU.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=3e-3, weight_decay=1e-4),
    clip_grad=dict(type='value', clip_value=10.))
param_scheduler = dict(type='CosineAnnealingLR', T_max=20, by_epoch=True, convert_to_iter_based=True)
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=20, val_interval=20)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
