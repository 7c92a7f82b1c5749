# AdamW; the proxies learn 100 times as fast, as the authors let them.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=1e-4, weight_decay=1e-4),
    clip_grad=dict(type='value', clip_value=10.),
    paramwise_cfg=dict(custom_keys={'head.proxies': dict(lr_mult=100.)}))
param_scheduler = dict(type='StepLR', by_epoch=True, step_size=5, gamma=0.5)
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=60, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
