# lr 10 belongs to batches of 1024 pairs (auto_scale_lr scales it linearly)
optim_wrapper = dict(optimizer=dict(type='SGD', lr=10, momentum=0.5, weight_decay=1e-4))
param_scheduler = [dict(type='MultiStepLR', milestones=[30, 60, 80], gamma=0.1, by_epoch=True)]
train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=90, val_interval=5)
val_cfg = dict(type='ValLoop')
test_cfg = dict(type='TestLoop')
auto_scale_lr = dict(base_batch_size=1024)
