# Adam; the embedding layer learns faster. The paper gives no factor; 10 is
# that of the authors of its batch sampler.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='Adam', lr=5e-6, weight_decay=4e-4),
    paramwise_cfg=dict(custom_keys={'head.fc': dict(lr_mult=10.)}))
param_scheduler = dict(type='MultiStepLR', by_epoch=True, milestones=[35], gamma=0.3)
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=80, val_interval=1)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
